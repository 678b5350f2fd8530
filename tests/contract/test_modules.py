"""Modules are kept in a directory and in a bucket alike: under their hash, once, and whole."""

import hashlib
from pathlib import Path
from typing import Final

import pytest

from tests.contract.object_stores import Dying, Killed
from toolgate.errors import BodyTooLarge, Conflict, InvalidRecord, NotFound
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.packages.artifacts import ModuleStore
from toolgate.packages.objects import ObjectStore

pytestmark = pytest.mark.anyio

LARGE: Final = b"\0asm" * (512 * 1024)
"""More than goes in one piece."""


@pytest.fixture
def modules(objects: ObjectStore) -> ModuleStore:
    return ModuleStore(objects)


async def put(modules: ModuleStore, directory: Path, content: bytes) -> tuple[str, bool]:
    sha256 = hashlib.sha256(content).hexdigest()
    path = directory / sha256
    path.write_bytes(content)
    return sha256, await modules.put(path, sha256=sha256)


async def read(modules: ModuleStore, sha256: str) -> bytes:
    return b"".join([piece async for piece in modules.read(sha256)])


async def test_what_was_put_is_read_listed_and_removed(modules: ModuleStore, tmp_path: Path) -> None:
    small, is_new = await put(modules, tmp_path, b"\0asm")
    large, _ = await put(modules, tmp_path, LARGE)
    content = [await read(modules, small), await read(modules, large)]
    listed = {one.sha256: one.size for one in await modules.list()}
    await modules.remove(small)

    assert is_new
    assert content == [b"\0asm", LARGE]
    assert listed == {small: 4, large: len(LARGE)}
    assert [await modules.has(small), await modules.has(large)] == [False, True]
    assert (await modules.get(large)).size == len(LARGE)


async def test_the_same_again_is_no_news(modules: ModuleStore, tmp_path: Path) -> None:
    sha256, _ = await put(modules, tmp_path, b"\0asm")
    before = await modules.get(sha256)

    assert await put(modules, tmp_path, b"\0asm") == (sha256, False)
    assert await modules.list() == [before]


async def test_half_of_a_put_is_never_seen(objects: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        await put(ModuleStore(Dying(objects, left=0)), tmp_path, b"\0asm")

    assert await ModuleStore(objects).list() == []
    assert (await put(ModuleStore(objects), tmp_path, b"\0asm"))[1]


async def test_one_that_is_not_there_is_not_found(modules: ModuleStore) -> None:
    for asked in (modules.get, modules.remove, lambda sha256: read(modules, sha256)):
        with pytest.raises(NotFound, match="0000"):
            await asked("0" * 64)


async def test_a_name_that_leads_elsewhere_reaches_nothing(modules: ModuleStore) -> None:
    """FIL-3"""
    for name in ("../packages/x", "", "A" * 64, f"{'0' * 64}\n"):
        with pytest.raises(InvalidRecord):
            await modules.has(name)


async def test_unknown_members_are_ignored(
    objects: ObjectStore, modules: ModuleStore, tmp_path: Path
) -> None:
    sha256, _ = await put(modules, tmp_path, b"\0asm")
    await objects.put("modules/readme.txt", b"x")
    await objects.put(f"modules/more/{'0' * 64}.wasm", b"x")

    assert [one.sha256 for one in await modules.list()] == [sha256]


async def test_there_are_only_so_many_and_only_so_large(objects: ObjectStore, tmp_path: Path) -> None:
    """WAS-2"""
    modules = ModuleStore(objects, max_modules=1)
    await put(modules, tmp_path, b"\0asm")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MAX_MODULE_BYTES + 1)

    with pytest.raises(Conflict, match="has reached its limit of"):
        await put(modules, tmp_path, b"\0asm2")
    with pytest.raises(BodyTooLarge, match=f"the limit is {MAX_MODULE_BYTES}"):
        await modules.put(large, sha256="0" * 64)
    assert not (await put(modules, tmp_path, b"\0asm"))[1]
