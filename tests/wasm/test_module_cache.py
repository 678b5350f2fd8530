"""Compiled modules: made once, kept, and never loaded unless this program wrote them."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import pytest
from wasmtime import Module, wat2wasm

from tests.wasm.wat import IDLE, job
from toolgate.errors import InvalidModule, InvalidRecord, NotFound, StorageFailed
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.compiler import new_engine
from toolgate.wasm.module_cache import IN_USE_S, REFUSED_S, UNUSED_S, CompiledModules
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

WASM = bytes(wat2wasm(IDLE))
SHA256 = hashlib.sha256(WASM).hexdigest()


class CacheWorld:
    """Modules somewhere else, a clock, and a directory for what is compiled of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.content = {SHA256: WASM}
        self.fetched: list[str] = []
        self.named: set[str] | None = {SHA256}
        self.now_s = 1_000_000.0

    def modules(self, **limits: int) -> CompiledModules:
        return CompiledModules(
            self.directory, self._fetch, named=lambda: self.named, clock_s=lambda: self.now_s, **limits
        )

    def add(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.content[sha256] = content
        return sha256

    async def _fetch(self, sha256: str) -> AsyncGenerator[bytes, None]:
        self.fetched.append(sha256)
        if sha256 not in self.content:
            raise NotFound("no such module")
        content = self.content[sha256]
        for start in range(0, len(content), 1 << 20):
            yield content[start : start + (1 << 20)]

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.directory.rglob("*") if not path.is_dir())


@pytest.fixture
def world(tmp_path: Path) -> CacheWorld:
    return CacheWorld(tmp_path / "modules-cache")


@pytest.fixture(scope="module")
def compiled_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the module was compiled."""
    world = CacheWorld(tmp_path_factory.mktemp("compiled") / "modules-cache")
    anyio.run(world.modules().open, SHA256)
    return world.directory


@pytest.fixture
def lived_in(world: CacheWorld, compiled_before: Path) -> CacheWorld:
    """A world of its own with such a directory."""
    shutil.copytree(compiled_before, world.directory)
    return world


async def test_a_module_is_fetched_and_compiled_once_for_all_who_want_it_and_runs(world: CacheWorld) -> None:
    async with world.modules() as modules:
        paths = await asyncio.gather(*[modules.open(SHA256) for _ in range(20)])
        async with Slots[None]([], max_guests=1) as slots:
            ending = await slots.run(GuestRun(job(paths[0], None)))

    assert ending.ended_by == "exit"
    assert set(paths) == {world.files[0]}
    assert world.fetched == [SHA256]
    assert paths[0].stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (world.directory, paths[0].parent)} == {0o700}


async def test_a_process_that_comes_later_finds_what_was_compiled(world: CacheWorld) -> None:
    path = await world.modules().open(SHA256)

    assert await world.modules().open(SHA256) == path
    assert world.fetched == [SHA256]


async def test_who_gives_up_leaves_the_work_to_be_found_done(world: CacheWorld) -> None:
    async with world.modules() as modules:
        first = asyncio.create_task(modules.open(SHA256))
        while not world.fetched:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await modules.open(SHA256)

    assert first.cancelled()
    assert world.fetched == [SHA256]


async def test_what_is_not_what_was_requested_is_not_compiled(world: CacheWorld) -> None:
    other = world.add(b"other")
    world.content[other] = WASM

    with pytest.raises(StorageFailed, match="another hash"):
        await world.modules().open(other)

    assert world.files == []


async def test_what_has_no_end_is_not_fetched_to_it(world: CacheWorld) -> None:
    other = world.add(bytes(MAX_MODULE_BYTES + 1))

    with pytest.raises(InvalidModule, match=f"more than {MAX_MODULE_BYTES} bytes"):
        await world.modules().open(other)

    assert world.files == []


async def test_what_cannot_be_fetched_is_tried_again_the_next_time(world: CacheWorld) -> None:
    modules = world.modules()
    del world.content[SHA256]
    with pytest.raises(NotFound):
        await modules.open(SHA256)
    world.content[SHA256] = WASM

    assert await modules.open(SHA256) == world.files[0]


async def test_a_module_that_cannot_be_compiled_is_not_tried_again_for_a_while(world: CacheWorld) -> None:
    bad = world.add(b"\0asm\1\0\0\0 no")
    modules = world.modules()
    for _ in range(3):
        with pytest.raises(InvalidModule):
            await modules.open(bad)
    world.now_s += REFUSED_S
    with pytest.raises(InvalidModule):
        await modules.open(bad)

    assert world.fetched == [bad, bad]
    assert world.files == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "*", SHA256.upper(), SHA256 + ".x"])
async def test_a_hash_is_a_hash(world: CacheWorld, name: str) -> None:
    with pytest.raises(InvalidRecord):
        await world.modules().open(name)


def with_other_code(path: Path) -> None:
    path.write_bytes(foreign_code())


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def writable_by_the_group(path: Path) -> None:
    path.chmod(0o620)


def a_link_elsewhere(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def a_second_name_elsewhere(path: Path) -> None:
    os.link(path, path.parent.parent / "elsewhere")


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12_345, -1)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def in_a_directory_that_others_may_enter(path: Path) -> None:
    path.parent.chmod(0o777)


def in_a_directory_of_another_user(path: Path) -> None:
    of_another_user(path.parent)


def in_a_directory_that_is_a_link(path: Path) -> None:
    shutil.copytree(path.parent, path.parent.parent.parent / "elsewhere")
    shutil.rmtree(path.parent)
    path.parent.symlink_to(path.parent.parent.parent / "elsewhere")


def in_a_cache_that_others_may_enter(path: Path) -> None:
    path.parent.parent.chmod(0o755)


def foreign_code() -> bytes:
    wat = '(module (memory (export "memory") 1) (func (export "_start") unreachable))'
    return bytes(Module(new_engine(), bytes(wat2wasm(wat))).serialize())


TAMPERINGS = [
    with_other_code,
    cut_short,
    writable_by_others,
    writable_by_the_group,
    a_link_elsewhere,
    a_second_name_elsewhere,
    of_another_user,
    a_directory,
    a_pipe,
]
PLACES = [
    in_a_directory_that_others_may_enter,
    in_a_directory_of_another_user,
    in_a_directory_that_is_a_link,
    in_a_cache_that_others_may_enter,
]


@pytest.mark.parametrize("tamper", TAMPERINGS)
async def test_compiled_code_that_others_may_have_written_is_never_loaded(
    lived_in: CacheWorld, tamper: Callable[[Path], None]
) -> None:
    """By one who has loaded it before neither."""
    modules = lived_in.modules()
    path = await modules.open(SHA256)
    good = path.read_bytes()
    tamper(path)

    assert (await modules.open(SHA256)).read_bytes() == good
    assert path.is_file()
    assert not path.is_symlink()
    assert path.stat().st_uid == os.geteuid()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_nlink == 1
    assert lived_in.fetched == [SHA256]


@pytest.mark.parametrize("tamper", [*TAMPERINGS, *PLACES])
async def test_compiled_code_that_others_may_have_written_is_no_start_for_a_new_process(
    lived_in: CacheWorld, tamper: Callable[[Path], None]
) -> None:
    path = await lived_in.modules().open(SHA256)
    good = path.read_bytes()
    tamper(path)

    found = await lived_in.modules().open(SHA256)

    assert found.read_bytes() == good
    assert not found.parent.is_symlink()
    assert [one.stat().st_mode & 0o777 for one in (found, found.parent, lived_in.directory)] == [
        0o600,
        0o700,
        0o700,
    ]
    assert lived_in.fetched == [SHA256]


async def test_code_that_was_planted_under_a_modules_name_is_removed(lived_in: CacheWorld) -> None:
    path = await lived_in.modules().open(SHA256)
    planted = path.with_name(f"{SHA256}.{'0' * 64}")
    path.rename(planted)
    planted.write_bytes(foreign_code())

    found = await lived_in.modules().open(SHA256)

    assert lived_in.files == [found]


async def test_modules_that_no_record_names_are_removed_later(lived_in: CacheWorld) -> None:
    modules = lived_in.modules()
    await modules.open(SHA256)
    lived_in.named = None
    lived_in.now_s += UNUSED_S
    await modules.sweep()
    are_kept_until_it_is_known = bool(lived_in.files)
    lived_in.named = {SHA256}
    await modules.sweep()
    are_kept_by_name = bool(lived_in.files)
    lived_in.named = set()
    lived_in.now_s += UNUSED_S - 1
    await modules.sweep()
    are_kept_for_a_while = bool(lived_in.files)
    lived_in.now_s += 1
    await modules.sweep()

    assert (are_kept_until_it_is_known, are_kept_by_name, are_kept_for_a_while) == (True, True, True)
    assert lived_in.files == []


async def test_what_other_versions_compiled_and_what_a_crash_left_goes(lived_in: CacheWorld) -> None:
    modules = lived_in.modules()
    path = await modules.open(SHA256)
    for left in (lived_in.directory / "wasmtime-1.0.0-0", path.parent / ".new-0-x"):
        left.mkdir()
        (left / "module.wasm").touch()
    await modules.sweep()

    assert lived_in.files == [path]
    assert list(lived_in.directory.iterdir()) == [path.parent]


@pytest.mark.parametrize("limits", [{"max_files": 1}, {"max_bytes": 20_000}])
async def test_the_ones_that_were_used_longest_ago_go_first(
    world: CacheWorld, limits: dict[str, int]
) -> None:
    other = world.add(bytes(wat2wasm(IDLE.replace("1", "2"))))
    world.named = {SHA256, other}
    modules = world.modules(**limits)
    first = await modules.open(SHA256)
    world.now_s += 1
    second = await modules.open(other)
    await modules.sweep()
    are_kept_while_in_use = world.files == sorted([first, second])
    world.now_s += IN_USE_S - 0.5
    await modules.sweep()

    assert are_kept_while_in_use
    assert world.files == [second]
    assert await modules.open(SHA256) == first
    assert world.fetched == [SHA256, other, SHA256]
