"""The catalog follows what is registered, listed, renamed and removed, and makes nothing twice."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import NOW_MS, RestWorld, open_rest, stdio
from tests.upstream.memory_link import MemoryNet, definition
from toolgate.errors import ServerUnavailable
from toolgate.gateway.search import HybridIndex
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.model.packages import ALL_TOOLS, CatalogRow
from toolgate.model.revisions import RecordWrite

pytestmark = pytest.mark.anyio

DEADLINE_S: Final = 240
READ: Final = definition("read", description="Read a file", annotations={"readOnlyHint": True})
WRITE: Final = definition("write", description="Write a file")


def net_of(**servers: tuple[bytes, ...]) -> MemoryNet:
    net = MemoryNet()
    for server_id, tools in servers.items():
        net.servers[server_id].tools = tools
    return net


async def until(keeper: CatalogProjection, shown: dict[str, list[str]]) -> None:
    """Returns when the catalog shows these tools of these packages."""
    async with asyncio.timeout(DEADLINE_S):
        while names(keeper) != shown:
            await asyncio.sleep(0)


def names(keeper: CatalogProjection) -> dict[str, list[str]]:
    return {package_id: [row.tool_name for row in rows] for package_id, rows in keeper.rows.items()}


async def _never(_members: Any) -> Any:
    await asyncio.Event().wait()


async def _fails(_members: Any) -> Any:
    raise ServerUnavailable("not today")


def put(body: dict[str, Any]) -> RecordWrite:
    return RecordWrite(kind="server", id=body["server_id"], body=body)


async def copied(store: MemoryStore) -> MemoryStore:
    """Records and catalog in a new store, as a restart finds them."""
    copy = MemoryStore(lambda: NOW_MS)
    records = (await store.list()).records
    await copy.write([RecordWrite(kind=one.kind, id=one.id, body=one.body) for one in records], actor="copy")
    for package_id, made_from in (await store.catalog.made_from()).items():
        await copy.catalog.replace(package_id, await store.catalog.rows(package_id), made_from=made_from)
    return copy


async def found(keeper: CatalogProjection, words: str) -> list[str]:
    return await keeper.searching.search(words, limit=10, within=None)


async def rows_of(world: RestWorld, package_id: str) -> list[CatalogRow]:
    return list(await world.store.catalog.rows(package_id))


@asynccontextmanager
async def open_other(world: RestWorld) -> AsyncIterator[CatalogProjection]:
    """A second keeper of the same table, as after a restart or on another replica."""
    other = CatalogProjection(
        world.store,
        world.control.gateway,
        searching=HybridIndex(),
        clock_ms=lambda: NOW_MS + 5,
        artifacts=world.control.artifacts,
    )
    async with other:
        yield other


async def test_a_server_that_is_registered_is_in_the_catalog_and_is_found_by_its_words() -> None:
    async with open_rest(net_of(fs=(READ, WRITE))) as world:
        await world.seed(server=[stdio("fs", display_name="Files", category="数据", tags=["disk"])])
        keeper = world.control.catalog
        await until(keeper, {"fs": ["read", "write"]})

        (row, _) = await rows_of(world, "fs")
        assert (row.package_name, row.category, row.tags, row.is_read_only, row.source) == (
            "Files",
            "数据",
            ("disk",),
            True,
            "discovered",
        )
        assert keeper.rows["fs"] == tuple(await rows_of(world, "fs"))
        assert await found(keeper, "read file") == ["fs.read", "fs.write"]


async def test_another_list_replaces_the_rows_and_leaves_those_that_stay() -> None:
    async with open_rest(net_of(fs=(READ, WRITE))) as world:
        await world.seed(server=[stdio("fs")])
        keeper = world.control.catalog
        await until(keeper, {"fs": ["read", "write"]})
        world.net.servers["fs"].announce_tools(READ, definition("move", description="Rename"))
        await until(keeper, {"fs": ["move", "read"]})

        assert [row.tool_name for row in await rows_of(world, "fs")] == ["move", "read"]
        assert await found(keeper, "write") == []


async def test_words_about_a_server_are_taken_over_without_a_new_list() -> None:
    async with open_rest(net_of(fs=(READ,))) as world:
        await world.seed(server=[stdio("fs")])
        await until(world.control.catalog, {"fs": ["read"]})
        listed = len(world.net.servers["fs"].lists)
        await world.seed(server=[stdio("fs", category="disk", tags=["a"], display_name="The files")])
        await world.cataloged()

        (row,) = await rows_of(world, "fs")
        assert (row.category, row.tags, row.package_name) == ("disk", ("a",), "The files")
        assert len(world.net.servers["fs"].lists) == listed


async def test_a_server_that_is_removed_leaves_nothing() -> None:
    async with open_rest(net_of(fs=(READ,), git=(WRITE,))) as world:
        await world.seed(server=[stdio("fs"), stdio("git")])
        keeper = world.control.catalog
        await until(keeper, {"fs": ["read"], "git": ["write"]})
        assert (await world.request("DELETE", "/admin/api/mcp/servers/fs")).status_code == 200
        await until(keeper, {"git": ["write"]})

        assert await rows_of(world, "fs") == []
        assert await found(keeper, "read") == []
        assert list(await world.store.catalog.made_from()) == ["git"]


async def test_of_a_server_that_was_never_listed_a_row_says_that_it_is_there() -> None:
    net = net_of(fs=(READ,))
    net.servers["fs"].on_list = _never
    async with open_rest(net) as world:
        await world.store.write([put(stdio("fs", display_name="Files"))], actor="ada")
        await until(world.control.catalog, {"fs": [ALL_TOOLS]})

        (row,) = await rows_of(world, "fs")
        assert (row.full_name, row.source, row.package_name) == ("fs.*", "legacy", "Files")


async def test_what_was_listed_in_an_earlier_life_is_shown_until_the_server_is_listed_again() -> None:
    store = MemoryStore(lambda: NOW_MS)
    async with open_rest(net_of(fs=(READ, WRITE)), store=store) as world:
        await world.seed(server=[stdio("fs")])
        await until(world.control.catalog, {"fs": ["read", "write"]})
        before = await rows_of(world, "fs")
    net = net_of(fs=(READ,))
    net.servers["fs"].on_list = _fails
    async with open_rest(net, store=await copied(store)) as world:
        keeper = world.control.catalog
        async with asyncio.timeout(DEADLINE_S):
            await keeper.indexed.wait()
            await keeper.make("fs")
        assert keeper.rows["fs"] == tuple(before)
        assert await found(keeper, "write") == ["fs.write"]

        # Words are taken over meanwhile.
        await world.store.write([put(stdio("fs", category="disk"))], actor="ada")
        async with asyncio.timeout(DEADLINE_S):
            while [row.category for row in keeper.rows["fs"]] != ["disk", "disk"]:
                await asyncio.sleep(0)
        net.servers["fs"].on_list = None
        await world.control.gateway.servers.refresh("fs")
        await until(keeper, {"fs": ["read"]})


async def test_a_server_that_became_another_is_not_shown_as_what_it_was() -> None:
    async with open_rest(net_of(fs=(READ,))) as world:
        await world.seed(server=[stdio("fs")])
        await until(world.control.catalog, {"fs": ["read"]})
        world.net.servers["fs"].on_list = _never
        await world.store.write([put(stdio("fs", stdio={"command": "other"}))], actor="ada")

        await until(world.control.catalog, {"fs": [ALL_TOOLS]})


async def test_rows_that_are_made_of_the_same_are_not_made_again() -> None:
    async with open_rest(net_of(fs=(READ,))) as world:
        await world.seed(server=[stdio("fs")])
        await until(world.control.catalog, {"fs": ["read"]})
        before = await rows_of(world, "fs")

        assert not await world.control.catalog.make("fs")
        async with open_other(world) as other:
            assert names(other) == {"fs": ["read"]}  # before anything was looked at
            assert not await other.make("fs")
        assert await rows_of(world, "fs") == before


async def test_replicas_take_over_what_the_others_make() -> None:
    async with open_rest(net_of(fs=(READ,))) as world, open_other(world) as other:
        await world.seed(server=[stdio("fs")])
        await until(other, {"fs": ["read"]})
        row = CatalogRow(package_id="elsewhere", tool_name="far", description="Far away")
        await world.store.catalog.replace("elsewhere", [row], made_from="another replica")
        await world.store.write([put(stdio("elsewhere", enabled=False))], actor="ada")
        async with asyncio.timeout(DEADLINE_S):
            while "elsewhere" not in other.rows:
                await asyncio.sleep(0)


async def test_a_package_that_cannot_be_made_keeps_no_other_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_rest(net_of(a=(READ,), b=(READ,), c=(READ,))) as world:
        replace, broken = world.store.catalog.replace, True

        async def failing(package_id: str, rows: Any, *, made_from: str) -> bool:
            if broken and package_id == "b":
                raise RuntimeError("no such luck")
            return await replace(package_id, rows, made_from=made_from)

        monkeypatch.setattr(world.store.catalog, "replace", failing)
        await world.store.write([put(stdio(one)) for one in "abc"], actor="ada")
        await until(world.control.catalog, {"a": ["read"], "c": ["read"]})
        broken = False
        await until(world.control.catalog, {"a": ["read"], "b": ["read"], "c": ["read"]})

    assert "no such luck" in caplog.text


# Packages


def manifest(version: str, *tools: bytes, **members: Any) -> bytes:
    run = {"transport": "stdio", "command": "serve"}
    head = {"manifestSchemaVersion": "v2", "id": "fs", "version": version, "name": "Files", "run": run}
    declared = [msgspec.Raw(tool) for tool in tools]
    return msgspec.json.encode({**head, "tools": declared, **members})


async def publish(
    world: RestWorld, directory: Path, version: str, content: bytes
) -> tuple[RecordWrite, RecordWrite]:
    """Keep a version of the package `fs`; the records that install it."""
    archive = directory / "archive"
    archive.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    await world.control.artifacts.put("fs", version, archive, manifest=content, sha256=sha256)
    ref = {"version": version, "sha256": sha256}
    source = "manifest" if b'"tools":[{' in content else "summary"
    package = {"package_id": "fs", **ref, "name": "Files", "schema_version": "v2", "source": source}
    return put(stdio("fs", package=ref)), RecordWrite(kind="package", id="fs", body=package)


@pytest.mark.requirement("004-20")
async def test_an_installed_package_is_in_the_catalog_before_its_server_was_ever_listed(
    tmp_path: Path,
) -> None:
    net = net_of(fs=(READ,))
    net.servers["fs"].on_list = _never
    async with open_rest(net) as world:
        keeper = world.control.catalog
        await world.store.write(
            await publish(world, tmp_path, "1.0.0", manifest("1.0.0", READ, WRITE, category="disk")),
            actor="ada",
        )
        await keeper.refresh_package("fs")

        assert names(keeper) == {"fs": ["read", "write"]}
        assert [(row.source, row.schema_version) for row in keeper.rows["fs"]] == [("manifest", "v2")] * 2
        assert await found(keeper, "write file") == ["fs.write", "fs.read"]

        # Another version, of which less is known.
        summary = manifest("2.0.0", toolsSummary=[{"name": "move", "description": "Rename"}])
        document = {**msgspec.json.decode(summary), "manifestSchemaVersion": "legacy"}
        del document["tools"]
        await world.store.write(
            await publish(world, tmp_path, "2.0.0", msgspec.json.encode(document)), actor="ada"
        )
        await keeper.refresh_package("fs")
        assert [(row.tool_name, row.source) for row in keeper.rows["fs"]] == [("move", "summary")]


async def test_what_the_server_lists_counts_before_what_its_manifest_says(tmp_path: Path) -> None:
    other = definition("write", description="Write another way")
    async with open_rest(net_of(fs=(READ, other))) as world:
        await world.store.write(
            await publish(world, tmp_path, "1.0.0", manifest("1.0.0", READ, WRITE)), actor="ada"
        )
        await world.cataloged()

        assert [(row.tool_name, row.source) for row in world.control.catalog.rows["fs"]] == [
            ("read", "manifest"),
            ("write", "discovered"),
        ]


async def test_a_server_that_was_taken_back_to_another_version_than_its_package_is_shown_as_it_is(
    tmp_path: Path,
) -> None:
    net = net_of(fs=(READ,))
    async with open_rest(net) as world:
        await world.store.write(await publish(world, tmp_path, "2.0.0", manifest("2.0.0", READ)), actor="ada")
        await world.cataloged()
        earlier, _ = await publish(world, tmp_path, "1.0.0", manifest("1.0.0", WRITE))
        net.servers["fs"].tools = (WRITE,)
        await world.store.write([earlier], actor="ada")

        await until(world.control.catalog, {"fs": ["write"]})


async def test_an_uninstalled_package_leaves_the_catalog_at_once(tmp_path: Path) -> None:
    async with open_rest(net_of(fs=(READ,))) as world:
        await world.store.write(await publish(world, tmp_path, "1.0.0", manifest("1.0.0", READ)), actor="ada")
        await world.cataloged()
        removal = [RecordWrite(kind=kind, id="fs", body=None) for kind in ("server", "package")]
        await world.store.write(removal, actor="ada")
        await world.control.catalog.refresh_package("fs")

        assert names(world.control.catalog) == {}
        assert await rows_of(world, "fs") == []


async def test_a_package_without_its_manifest_is_shown_as_unknown(tmp_path: Path) -> None:
    net = net_of(fs=(READ,))
    net.servers["fs"].on_list = _never
    async with open_rest(net) as world:
        writes = await publish(world, tmp_path, "1.0.0", manifest("1.0.0", READ, toolsSummary=[]))
        await world.control.artifacts.remove("fs", "1.0.0")
        server, package = writes
        assert package.body is not None
        unknown = RecordWrite(kind="package", id="fs", body={**package.body, "source": "summary"})
        await world.store.write([server, unknown], actor="ada")
        await world.control.catalog.refresh_package("fs")

        assert names(world.control.catalog) == {"fs": [ALL_TOOLS]}


@pytest.mark.requirement("004-22")
async def test_backfill_goes_through_all_in_batches_and_makes_nothing_twice() -> None:
    tools = {f"s{n}": (READ,) for n in range(5)}
    async with open_rest(net_of(**tools)) as world:
        await world.seed(server=[stdio(server_id) for server_id in tools])
        await world.cataloged()
        for server_id in ("s1", "s3"):
            await world.store.catalog.remove(server_id)
        keeper = world.control.catalog
        async with asyncio.timeout(DEADLINE_S):
            while len(keeper.rows) > 3:
                await asyncio.sleep(0)
        seen: list[dict[str, Any]] = []
        cursor = ""
        while not seen or cursor:
            path = f"/admin/api/catalog/backfill?limit=2{cursor and f'&cursor={cursor}'}"
            seen.append(await world.post(path))
            cursor = seen[-1]["next_cursor"]

        assert [(one["done"], one["total"], one["failed"]) for one in seen] == [
            (2, 5, {}),
            (4, 5, {}),
            (5, 5, {}),
        ]
        assert sum(one["changed"] for one in seen) == 2
        assert names(keeper) == {server_id: ["read"] for server_id in tools}
        assert (await world.post("/admin/api/catalog/backfill"))["changed"] == 0
