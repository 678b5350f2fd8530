"""The directory of server files, followed as it changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.contract.stores import DEADLINE_S, Clock
from tests.registry.memory_store import MemoryStore
from tests.registry.server_files import body, save
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Clock())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mcp.d").mkdir(mode=0o700)
    return tmp_path / "mcp.d"


async def titles(store: Store) -> dict[str, str]:
    return {stored.id: stored.body.get("display_name", "") for stored in (await store.list("server")).records}


async def until_logged(text: str, caplog: pytest.LogCaptureFixture) -> None:
    while not any(text in record.getMessage() for record in caplog.records):
        await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(store: Store, loader: DirectoryLoader) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
    """The loader follows its files; what is given is what the store's watchers see of it."""
    await loader.reload()
    async with asyncio.timeout(DEADLINE_S), store.watch(store.revision) as batches:
        await anext(batches)
        task = asyncio.create_task(loader.watch())
        try:
            yield batches
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_saved_file_is_applied_without_being_asked(store: MemoryStore, directory: Path) -> None:
    async with watching(store, DirectoryLoader(store, directory)) as batches:
        save(directory / "fs.json", server_id="fs")
        first = await anext(batches)
        (directory / "fs.json").unlink()
        second = await anext(batches)

    assert [(change.id, change.operation) for change in first.changes + second.changes] == [
        ("fs", "put"),
        ("fs", "delete"),
    ]


async def test_fil_7_of_an_editors_save_only_the_whole_file_is_applied(
    store: MemoryStore, directory: Path
) -> None:
    path = directory / "fs.json"
    save(path, server_id="fs", display_name="v0", allowed_tools=["read"])

    async with watching(store, DirectoryLoader(store, directory)) as batches:
        for version in ("v1", "v2", "v3"):
            text = json.dumps(body("fs", display_name=version, allowed_tools=["read"]))
            path.write_text("")
            await asyncio.sleep(0)
            path.write_text(text[: len(text) // 2])
            await asyncio.sleep(0)
            draft = path.with_name("fs.json.tmp")
            draft.write_text(text)
            draft.rename(path)
        batch = await anext(batches)

    assert [(change.operation, change.after) for change in batch.changes] == [
        ("put", body("fs", display_name="v3", allowed_tools=["read"]))
    ]


async def test_shu_5_a_bad_save_is_reported_and_the_next_good_one_is_applied(
    store: MemoryStore, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(directory / "fs.json", server_id="fs", display_name="v0")

    async with watching(store, DirectoryLoader(store, directory, strict=True)) as batches:
        (directory / "fs.json").write_text("{")
        await until_logged("fs.json:1", caplog)
        assert await titles(store) == {"fs": "v0"}
        save(directory / "fs.json", server_id="fs", display_name="v1")
        await anext(batches)

    assert await titles(store) == {"fs": "v1"}


async def test_a_directory_that_goes_and_comes_back_is_followed_again(
    store: MemoryStore, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(directory / "fs.json", server_id="fs", display_name="v0")

    async with watching(store, DirectoryLoader(store, directory, look_every_s=0.05)) as batches:
        directory.rename(directory.with_name("away"))
        await until_logged("cannot read the registry directory", caplog)
        directory.mkdir(mode=0o700)
        save(directory / "fs.json", server_id="fs", display_name="v1")
        batch = await anext(batches)

    assert [change.id for change in batch.changes] == ["fs"]
    assert await titles(store) == {"fs": "v1"}
