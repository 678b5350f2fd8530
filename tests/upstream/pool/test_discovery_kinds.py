"""Prompts, resources and templates are listed next to tools, and no kind costs another anything."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.model.tools import ServerTools
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.upstream.pool.discovery import FORMS
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

ALL: Mapping[str, Json] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "x-own": {}}
BROKEN = RpcResponse(error=b'{"code":-32603,"message":"broken"}')


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def listing(**members: Any) -> bytes:
    return msgspec.json.encode(members)


def full_server(**fields: Any) -> MemoryServer:
    return MemoryServer(
        capabilities=ALL,
        prompts=(listing(name="greet"), listing(name=5)),
        resources=(listing(uri="memo://a", name="a"),),
        templates=(listing(uriTemplate="memo://{x}", name="any"),),
        **fields,
    )


async def listed(pool: Pool) -> ServerTools:
    pool.apply({"one": record()})
    await pool.settled(["one"])
    return pool.tools()["one"]


async def never(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def broken(_: Json) -> RpcResponse:
    return BROKEN


async def not_found(_: Json) -> RpcResponse:
    return RpcResponse(error=b'{"code":-32601,"message":"Method not found"}')


def names(tools: ServerTools) -> tuple[list[str], ...]:
    return tuple(map(list, (tools.tools, tools.prompts, tools.resources, tools.templates)))


async def test_all_kinds_are_listed_and_shown_at_once() -> None:
    changed: list[str] = []
    server = full_server(era="legacy")
    async with pool_of(MemoryNet(one=server), on_change=changed.append) as pool:
        found = await listed(pool)

    assert names(found) == (["echo"], ["greet"], ["memo://a"], ["memo://{x}"])
    assert [name.partition(":")[0] for name in found.quarantined] == ["prompt"]
    assert (found.state, found.is_stale, found.detail, found.era) == ("ready", False, "", "legacy")
    assert found.features == {"tools", "prompts", "resources", "completions"}
    assert changed == ["one"]


async def test_a_kind_that_is_not_announced_is_not_listed() -> None:
    server = MemoryServer(prompts=(listing(name="greet"),))
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)
        await pass_time(1000)

    assert (names(found)[1:], set(server.lists)) == (([], [], []), {"tools/list"})
    assert found.features == {"tools"}


async def test_a_server_of_prompts_alone_offers_those() -> None:
    server = MemoryServer(capabilities={"prompts": {}}, prompts=(listing(name="greet"),))
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)

    assert (found.state, names(found)) == ("ready", ([], ["greet"], [], []))


async def test_a_server_without_a_method_for_a_list_has_nothing_in_it() -> None:
    """Many servers of resources know nothing of templates."""
    server = full_server(on_lists={"resources/templates/list": not_found})
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)
        health = pool.health()["one"]

    assert (list(found.resources), list(found.templates), found.is_stale) == (["memo://a"], [], False)
    assert (health.state, health.last_error) == ("connected", "")


async def test_a_kind_that_fails_keeps_its_last_list_and_is_tried_again_alone() -> None:
    server = full_server()
    async with pool_of(MemoryNet(one=server)) as pool:
        good = await listed(pool)
        server.on_lists = {"prompts/list": broken}
        await pool.refresh("one")
        stale, health = pool.tools()["one"], pool.health()["one"]
        server.lists.clear()
        await pass_time(20)
        retries = list(server.lists)
        server.on_lists = {}
        await pass_time(20)

        assert names(stale) == names(good)
        assert (stale.state, stale.is_stale) == ("ready", True)
        assert stale.detail == f"prompts: the server rejected `prompts/list`: {BROKEN.error.decode()}"  # type: ignore[union-attr]
        assert (health.state, health.last_error) == ("connected", stale.detail.removeprefix("prompts: "))
        assert retries == ["prompts/list"] * 4
        assert pool.tools()["one"] == good


async def test_tools_that_fail_cost_prompts_and_resources_nothing() -> None:
    server = full_server(on_list=broken)
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)

    assert (found.state, names(found)) == ("list_failed", ([], ["greet"], ["memo://a"], ["memo://{x}"]))


async def test_a_list_that_hangs_holds_up_the_others_for_a_second() -> None:
    server = full_server(on_lists={"prompts/list": never})
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)
        listed_s = asyncio.get_running_loop().time()
        await pass_time(10)
        later = pool.tools()["one"]

    assert (listed_s, found.state, names(found)) == (
        1.0,
        "ready",
        (["echo"], [], ["memo://a"], ["memo://{x}"]),
    )
    assert (later.is_stale, names(later)) == (True, names(found))
    assert later.detail.startswith("prompts: `prompts/list` timed out: ")


@pytest.mark.parametrize(
    ("method", "lists"),
    [
        ("notifications/tools/list_changed", {"tools/list"}),
        ("notifications/prompts/list_changed", {"prompts/list"}),
        ("notifications/resources/list_changed", {"resources/list", "resources/templates/list"}),
        ("notifications/surprise", set()),
    ],
)
async def test_a_changed_list_is_read_again_and_no_other(method: str, lists: set[str]) -> None:
    server = full_server()
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        server.lists.clear()
        server.notify(method)
        await pass_time(2)

    assert set(server.lists) == lists


async def test_tools_that_did_not_change_stay_the_same_object_when_prompts_do() -> None:
    server = full_server()
    async with pool_of(MemoryNet(one=server)) as pool:
        before = await listed(pool)
        server.prompts = (listing(name="other"),)
        await pool.refresh("one")
        after = pool.tools()["one"]

    assert (after.tools is before.tools, list(after.prompts)) == (True, ["other"])


async def test_a_server_that_came_back_without_prompts_has_none() -> None:
    server = full_server()
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        server.capabilities = {"tools": {}}
        server.crash()
        await pool.refresh("one")
        after = pool.tools()["one"]

    assert names(after) == (["echo"], [], [], [])
    assert after.features == {"tools"}


@pytest.mark.parametrize(
    ("kind", "entries", "count"),
    [
        pytest.param(
            "prompts", [listing(name=f"p{n}") for n in range(2_100)], MAX_DEFINITIONS, id="too many"
        ),
        pytest.param(
            "resources",
            [listing(uri=f"memo://{n}", name="m", _meta={"x": "y" * 100_000}) for n in range(100)],
            FORMS["resources"].max_bytes // 100_050,
            id="too large",
        ),
    ],
)
async def test_ups_11_lists_of_each_kind_are_bounded(kind: str, entries: list[bytes], count: int) -> None:
    server = full_server()
    setattr(server, kind, entries)
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)

    assert len(getattr(found, kind)) == count
    assert found.detail.startswith(f"{kind}: only the first ")
    assert list(found.tools) == ["echo"]


async def test_ups_11_a_bad_listing_costs_no_other_and_no_other_server() -> None:
    server = full_server()
    server.resources = (b'{"uri":"no scheme"}', b"[]", listing(uri="memo://good", name="good"))
    net = MemoryNet(one=server, two=MemoryServer(tools=(definition("fine"),)))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["one", "two"])
        found, other = pool.tools()["one"], pool.tools()["two"]

    assert (list(found.resources), list(other.tools)) == (["memo://good"], ["fine"])
    assert len(found.quarantined) == 3


async def test_ups_16_each_kind_has_a_time_to_live_of_its_own() -> None:
    async def short_lived(_: Json) -> RpcResponse:
        return RpcResponse(result=b'{"prompts":[],"ttlMs":40000}')

    server = full_server(on_lists={"prompts/list": short_lived})
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        server.lists.clear()
        await pass_time(100)

    assert server.lists == ["prompts/list", "prompts/list"]
