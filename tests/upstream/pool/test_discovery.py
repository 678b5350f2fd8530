"""Discovery through the pool: pages, caps, `list_changed`, time to live, failures."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import msgspec
import pytest

from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, params, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.model.tools import ServerTools
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.upstream.pool.discovery import FORMS, MAX_PAGES
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

Lister = Callable[[Json], Awaitable[RpcResponse]]


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def page(*tools: bytes, **members: object) -> RpcResponse:
    encoded = msgspec.json.encode({"tools": [msgspec.Raw(tool) for tool in tools], **members})
    return RpcResponse(result=encoded)


def pages_of(*pages: RpcResponse) -> Lister:
    """Responds with the page that the cursor names; the first without one."""

    async def respond(members: Json) -> RpcResponse:
        return pages[int(members.get("cursor", 0))]

    return respond


async def never(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def listed(pool: Pool, server_id: str = "one") -> ServerTools:
    pool.apply({server_id: record(server_id)})
    await pool.settled([server_id])
    return pool.tools()[server_id]


async def test_every_page_is_followed_and_every_definition_checked_alone() -> None:
    pages = pages_of(
        page(definition("a"), definition("b"), nextCursor="1"),
        page(b'{"name":"bad","inputSchema":7}', definition("c")),
    )
    async with pool_of(MemoryNet(one=MemoryServer(on_list=pages))) as pool:
        found = await listed(pool)

    assert (found.state, list(found.tools), list(found.quarantined)) == (
        "ready",
        ["a", "b", "c"],
        ["bad"],
    )
    assert (found.is_stale, found.detail) == (False, "")


async def test_a_server_that_announces_no_tools_is_not_listed() -> None:
    server = MemoryServer(capabilities={"prompts": {}})
    async with pool_of(MemoryNet(one=server)) as pool:
        found = await listed(pool)
        state = pool.health()["one"].state

    assert (found.state, dict(found.tools), server.lists_s, state) == ("ready", {}, [], "connected")


@pytest.mark.parametrize(
    ("pages", "tools", "detail"),
    [
        pytest.param(
            [page(definition("a"), nextCursor="1"), page(definition("b"), nextCursor="1")],
            2,
            "the list ends where its cursors begin to repeat",
            id="a cursor that loops",
        ),
        pytest.param(
            [page(definition(f"t{n}"), nextCursor=str(n + 1)) for n in range(MAX_PAGES + 5)],
            MAX_PAGES,
            "only the first 100 pages are taken",
            id="too many pages",
        ),
        pytest.param(
            [
                page(*(definition(f"t{n}-{m}") for m in range(900)), nextCursor=str(n + 1))
                for n in range(111)  # 99,900 tools
            ],
            MAX_DEFINITIONS,
            "only the first 2000 tools are taken",
            id="a hundred thousand tools",
        ),
        pytest.param(
            [
                page(
                    *(definition(f"t{n}-{m}", _meta={"x": "y" * 900_000}) for m in range(8)),
                    nextCursor=str(n + 1),
                )
                for n in range(4)
            ],
            FORMS["tools"].max_bytes // 900_100,
            f"only the first {FORMS['tools'].max_bytes} bytes of tools are taken",
            id="too many bytes",
        ),
        pytest.param(
            [page(definition("a"), nextCursor=7)],
            1,
            "the list ends at a `nextCursor` that is not text",
            id="an invalid cursor",
        ),
    ],
)
async def test_ups_11_a_list_without_end_is_capped_with_a_reason(
    pages: list[RpcResponse], tools: int, detail: str
) -> None:
    net = MemoryNet(one=MemoryServer(on_list=pages_of(*pages)))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["one", "two"])
        found, other = pool.tools()["one"], pool.tools()["two"]

    assert (found.state, len(found.tools), found.detail) == ("ready", tools, detail)
    assert list(other.tools) == ["echo"]


def nested(name: str, *, depth: int) -> bytes:
    inside = b'{"properties":{"a":' * (depth // 2) + b"{}" + b"}}" * (depth // 2)
    return b'{"name":"%b","inputSchema":{"type":"object","allOf":[%b]}}' % (name.encode(), inside)


async def test_ups_11_monstrous_definitions_are_quarantined_alone() -> None:
    tools = (
        definition("wordy", description="x" * 5_000_000),
        nested("deep", depth=200),
        definition("fine"),
    )
    async with pool_of(MemoryNet(one=MemoryServer(tools=tools))) as pool:
        found = await listed(pool)

    assert (list(found.tools), sorted(found.quarantined)) == (["fine"], ["#1", "deep"])


async def test_ups_11_a_list_nested_too_deep_to_be_read_costs_only_its_own_server() -> None:
    net = MemoryNet(one=MemoryServer(tools=(nested("abyss", depth=10_000), definition("fine"))))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["one", "two"])
        states = {server_id: tools.state for server_id, tools in pool.tools().items()}

    assert states == {"one": "list_failed", "two": "ready"}


async def test_ups_8_a_flood_of_list_changed_leads_to_one_list_a_second_and_the_last_catalogue() -> None:
    net = MemoryNet()
    server = net["one"]
    async with pool_of(net) as pool:
        await listed(pool)
        for n in range(3000):
            server.announce_tools(definition(f"version_{n}"))
            await pass_time(0.001)
        await pass_time(2)
        tools = list(pool.tools()["one"].tools)

    gaps = [later - earlier for earlier, later in pairwise(server.lists_s)]
    assert tools == ["version_2999"]
    assert len(server.lists_s) <= 6
    assert min(gaps) >= 1.0


async def test_ups_8_what_changes_while_a_list_is_read_is_read_by_the_next() -> None:
    net = MemoryNet()
    server = net["one"]

    async def slow_and_outdated(_: Json) -> RpcResponse:
        tools = tuple(server.tools)
        await asyncio.sleep(3)
        return page(*tools)

    async with pool_of(net) as pool:
        await listed(pool)
        server.on_list = slow_and_outdated
        server.announce_tools(definition("old"))
        await pass_time(2)
        server.announce_tools(definition("new"))
        await pass_time(2.5)
        between = list(pool.tools()["one"].tools)
        await pass_time(3)

        assert (between, list(pool.tools()["one"].tools)) == (["old"], ["new"])


async def test_on_change_tells_only_of_real_changes() -> None:
    net = MemoryNet()
    changed: list[str] = []
    async with pool_of(net, on_change=changed.append, list_ttl_s=10) as pool:
        first = await listed(pool)
        await pass_time(25)
        lists, again = len(net["one"].lists_s), pool.tools()["one"]
        net["one"].tools = (definition("other"),)
        await pass_time(10)

    assert (lists, changed) == (3, ["one", "one"])
    assert again is first


@pytest.mark.parametrize(
    ("ttl_ms", "expected_s"),
    [
        pytest.param(60_000, 60.0, id="taken at its word"),
        pytest.param(1, 30.0, id="not below half a minute"),
        pytest.param(2**63, 300.0, id="not above five minutes"),
        pytest.param(-5, 30.0, id="negative counts as 0"),
        pytest.param("soon", 30.0, id="text counts as 0"),
        pytest.param(True, 30.0, id="a boolean counts as 0"),
        pytest.param(None, 120.0, id="none: the pool's own"),
    ],
)
async def test_ups_16_a_list_is_read_again_when_its_time_to_live_is_over(
    ttl_ms: object, expected_s: float
) -> None:
    server = MemoryServer(on_list=pages_of(page(definition("a"), ttlMs=ttl_ms)))
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        await pass_time(301)

    assert server.lists_s[1] - server.lists_s[0] == pytest.approx(expected_s)


@pytest.mark.requirement("002-094")
@pytest.mark.parametrize("ttl_ms", [None, 30_000, 300_000])
async def test_a_record_says_how_often_lists_are_read_again_whatever_the_server_says(ttl_ms: object) -> None:
    server = MemoryServer(on_list=pages_of(page(definition("a"), ttlMs=ttl_ms)))
    async with pool_of(MemoryNet(one=server)) as pool:
        pool.apply({"one": record("one", list_ttl_s=75)})
        await pool.settled(["one"])
        await pass_time(100)

    assert [round(at_s - server.lists_s[0]) for at_s in server.lists_s] == [0, 75]


async def test_the_shortest_time_to_live_of_all_pages_holds() -> None:
    pages = pages_of(page(definition("a"), nextCursor="1", ttlMs=90_000), page(definition("b"), ttlMs=40_000))
    server = MemoryServer(on_list=pages)
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        await pass_time(100)

    assert server.lists_s[2] - server.lists_s[0] == pytest.approx(40)


async def test_a_failed_list_keeps_the_last_good_tools_marked_and_recovers() -> None:
    net = MemoryNet()
    server = net["one"]
    changed: list[str] = []
    async with pool_of(net, on_change=changed.append) as pool:
        good = await listed(pool)
        server.on_list = pages_of(RpcResponse(error=b'{"code":-32603,"message":"broken"}'))
        await pool.refresh("one")
        stale, health = pool.tools()["one"], pool.health()["one"]
        server.on_list = None
        await pool.refresh("one")

        assert (stale.state, stale.tools, stale.is_stale) == ("ready", good.tools, True)
        assert stale.detail == 'the server rejected `tools/list`: {"code":-32603,"message":"broken"}'
        assert (health.state, health.last_error) == ("degraded", stale.detail)
        assert pool.tools()["one"] == good
        assert pool.health()["one"].state == "connected"
    assert changed == ["one", "one", "one"]


@pytest.mark.requirement("000-03")
@pytest.mark.parametrize(
    ("on_list", "state"),
    [
        pytest.param(pages_of(RpcResponse(error=b'{"code":-32601}')), "list_failed", id="refused"),
        pytest.param(pages_of(RpcResponse(result=b'{"tools":5}')), "list_failed", id="not a list"),
        pytest.param(pages_of(RpcResponse(result=b'{"tools":[\xff]}')), "list_failed", id="not JSON"),
        pytest.param(never, "list_timeout", id="no response"),
    ],
)
async def test_a_server_with_its_first_list_fails_has_no_tools_and_a_reason(
    on_list: Lister, state: str
) -> None:
    async with pool_of(MemoryNet(one=MemoryServer(on_list=on_list)), first_list_wait_s=60) as pool:
        found = await listed(pool)

    assert (found.state, dict(found.tools), found.is_stale) == (state, {}, False)
    assert found.detail


async def test_a_server_that_dies_while_it_is_listed_is_listed_again() -> None:
    net = MemoryNet(one=MemoryServer(on_list=never))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pass_time(1)
        net["one"].crash("it exited with 9")
        await pool.settled(["one"])
        failed = pool.tools()["one"]
        net["one"].on_list = None
        await pass_time(2)

        assert (failed.state, failed.detail) == ("list_failed", "it exited with 9")
        assert (pool.tools()["one"].state, len(net["one"].starts_s)) == ("ready", 2)


async def test_pages_have_their_time_together() -> None:
    async def slow(members: Json) -> RpcResponse:
        await asyncio.sleep(4)
        return page(definition("a"), nextCursor=str(int(members.get("cursor", 0)) + 1))

    server = MemoryServer(on_list=slow)
    async with pool_of(MemoryNet(one=server), first_list_wait_s=60) as pool:
        found = await listed(pool)

        assert (found.state, asyncio.get_running_loop().time()) == ("list_timeout", 10.0)


@pytest.mark.requirement("002-095")
async def test_failed_lists_are_tried_again_after_one_to_five_seconds() -> None:
    server = MemoryServer(on_list=pages_of(RpcResponse(error=b"{}")))
    async with pool_of(MemoryNet(one=server)) as pool:
        await listed(pool)
        await pass_time(23)

    assert server.lists_s == pytest.approx([0, 1, 3, 7, 12, 17, 22])


async def test_a_list_that_hangs_does_not_hold_up_calls() -> None:
    net = MemoryNet(one=MemoryServer(on_list=never))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pass_time(1)
        await pool.call("one", "tools/call", params("echo"))

        assert asyncio.get_running_loop().time() == 1.0


async def test_ups_10_servers_with_the_same_tool_names_are_each_reached_by_their_own_id() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({name: record(name) for name in ("one", "two")})
        await pool.settled(["one", "two"])
        await pool.call("two", "tools/call", params("echo", to="two"))
        refs = [str(tools.tools["echo"].ref) for tools in pool.tools().values()]

    assert refs == ["one/echo", "two/echo"]
    assert ([seen.params for seen in net["one"].calls], [seen.params for seen in net["two"].calls]) == (
        [],
        [{"name": "echo", "arguments": {"to": "two"}}],
    )
