"""UPS-11 over HTTP: whatever a server lists, it is read in bounds, and its neighbour is called meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from tests.upstream.abused import open_abused
from tests.upstream.faulty_http import FakeMcp, Peer, Request
from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.upstream.pool.discovery import MAX_PAGES

pytestmark = pytest.mark.anyio

Tool = dict[str, Any]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


def tool(name: str, **members: Any) -> Tool:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def listing(tools: Iterable[Tool], cursor: Callable[[Any], Any] = lambda _: None) -> Any:
    """Answers `tools/list` with these, and with the cursor that follows the one it was asked for."""
    offered: list[Tool] = []

    async def script(request: Request, peer: Peer) -> None:
        # Not before: of the 100,000 every worker would make its own as it collects the tests.
        offered.extend(tools if not offered else ())
        following = cursor(request.message["params"].get("cursor"))
        more = {} if following is None else {"nextCursor": following}
        await peer.result(request, {"tools": offered, "resultType": "complete", "ttlMs": 60_000, **more})

    return script


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


async def deep(request: Request, peer: Peer) -> None:
    """A schema of a thousand levels next to a good tool: too deep for most encoders, ours included."""
    inside = '{"type":"object","properties":{"a":' * 1000 + "{}" + "}}" * 1000
    tools = f'[{{"name":"deep","inputSchema":{inside}}},{json.dumps(tool("fine"))}]'
    body = f'{{"jsonrpc":"2.0","id":{request.message["id"]},"result":{{"tools":{tools},"ttlMs":60000}}}}'
    await peer.respond(body.encode())


REDOS = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
FINE = tool("fine")


@pytest.mark.parametrize(
    ("script", "is_stale", "tools", "requests"),
    [
        pytest.param(listing([FINE], lambda _: "again"), False, 1, 2, id="a cursor that loops"),
        pytest.param(
            listing([FINE], lambda at: str(int(at or 0) + 1)), False, 1, MAX_PAGES, id="cursors without end"
        ),
        pytest.param(
            listing(tool(f"t{n}") for n in range(100_000)),
            False,
            MAX_DEFINITIONS,
            1,
            id="a hundred thousand tools",
        ),
        pytest.param(
            listing([FINE, tool("wordy", description="x" * 10_000_000)]),
            True,
            1,
            1,
            id="10 MB: the last good list stays",
        ),
        pytest.param(
            listing([FINE, tool("wordy", description="x" * 5_000_000)]),
            False,
            1,
            1,
            id="5 MB, left out alone",
        ),
        pytest.param(
            listing([FINE, tool("nested", inputSchema=nested(200))]),
            False,
            1,
            1,
            id="200 levels, left out alone",
        ),
        pytest.param(deep, True, 1, 1, id="a thousand levels: the last good list stays"),
        pytest.param(
            listing([FINE, tool("slow", inputSchema=REDOS)]), False, 2, 1, id="a pattern that is too slow"
        ),
        pytest.param(listing([FINE] * 50), False, 1, 1, id="the same name again and again"),
    ],
)
async def test_ups_11_a_list_is_read_in_bounds_and_costs_the_neighbour_nothing(
    script: Callable[[Request, Peer], Awaitable[None]], tools: int, requests: int, *, is_stale: bool
) -> None:
    mcp = FakeMcp()
    async with open_abused(mcp) as abused:
        before = len(abused.server.seen("tools/list"))
        mcp.faults["tools/list"] = script
        await abused.pool.refresh("bad")
        found = abused.pool.tools()["bad"]
        asked = len(abused.server.seen("tools/list")) - before

        assert (found.is_stale, len(found.tools), asked) == (is_stale, tools, requests)
        assert await abused.call(1, server_id="good") == 1


@pytest.mark.parametrize(("era", "stream"), [("legacy", "GET"), ("modern", "subscriptions/listen")])
async def test_ups_8_a_flood_of_list_changed_leads_to_few_lists_and_the_last_catalogue(
    era: str, stream: str
) -> None:
    version = 0
    is_calm, go_on = asyncio.Event(), asyncio.Event()

    async def flood(request: Request, peer: Peer) -> None:
        nonlocal version
        await peer.open_stream()
        await go_on.wait()
        for _ in range(3000):
            version += 1
            await peer.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        is_calm.set()
        await peer.gone()

    async def list_newest(request: Request, peer: Peer) -> None:
        await listing([tool(f"version_{version}")])(request, peer)

    tells = {"tools": {"listChanged": True}}
    mcp = FakeMcp(era, faults={stream: flood, "tools/list": list_newest}, capabilities=tells)
    async with open_abused(mcp) as abused:
        began_s = asyncio.get_running_loop().time()
        go_on.set()
        await is_calm.wait()
        while list(abused.pool.tools()["bad"].tools) != ["version_3000"]:
            await abused.call(1, server_id="good")

        # The first, one at once, one after the last change, and one a second while the flood goes on.
        took_s = asyncio.get_running_loop().time() - began_s
        assert len(abused.server.seen("tools/list")) <= 3 + took_s
