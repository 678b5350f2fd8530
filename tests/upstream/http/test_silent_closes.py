"""HTTP servers that close their connections and streams without saying so work like any other."""

import asyncio
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from tests.upstream.faulty_sse import Sse
from tests.upstream.faulty_sse import opener as sse_opener
from tests.upstream.faulty_sse import record_for as sse_record
from tests.upstream.http_links import opener, params, record_for
from toolgate.errors import ServerUnavailable
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
CALLS = 12


class Closing:
    """Closes each connection so long after its first answer, and does not say so."""

    def __init__(self, keeps_s: float) -> None:
        self._keeps_s = keeps_s
        self._mcp = FakeMcp("legacy", faults={"tools/list": self._list})

    async def __call__(self, request: Request, peer: Peer) -> None:
        await self._mcp(request, peer)
        await asyncio.sleep(self._keeps_s)
        peer.close()

    async def _list(self, request: Request, peer: Peer) -> None:
        await peer.result(request, TOOLS)


async def call(pool: Pool) -> str:
    try:
        await pool.call("there", "tools/call", params(name="echo", arguments={}))
    except ServerUnavailable as exc:
        return str(exc)
    return "sent"


@pytest.mark.parametrize("keeps_s", [0.0, 0.005])
async def test_a_server_that_closes_after_each_answer_is_connected_and_called(keeps_s: float) -> None:
    async with (
        asyncio.timeout(60),
        FaultyHttp(Closing(keeps_s)) as server,
        Pool({"streamable_http": opener()}, on_change=lambda _: None) as pool,
    ):
        pool.apply({"there": record_for(server.url)})
        await pool.settled(["there"])
        outcomes = [await call(pool) for _ in range(CALLS)]
        health = pool.health()["there"]

    assert (health.state, health.restarts, outcomes.count("sent")) == ("connected", 0, CALLS)


class ClosingSse(Sse):
    """Ends its stream after each answer to a call."""

    def respond(self, request: Request) -> dict[str, Any]:
        if request.rpc == "tools/list":
            return {"jsonrpc": "2.0", "id": request.message["id"], "result": TOOLS}
        return super().respond(request)

    async def say(self, message: Any) -> None:
        await super().say(message)
        if "echo" in message.get("result", {}):
            assert self.stream is not None
            self.stream.close()


async def test_a_server_that_ends_its_stream_after_each_answer_is_not_down() -> None:
    async with (
        asyncio.timeout(60),
        FaultyHttp(ClosingSse()) as server,
        Pool({"http_sse_legacy": sse_opener()}, on_change=lambda _: None) as pool,
    ):
        pool.apply({"there": sse_record(server.url)})
        await pool.settled(["there"])
        outcomes = []
        for _ in range(CALLS):
            await eventually_async(lambda: pool.health()["there"].state != "starting")
            outcomes.append(await call(pool))
            await eventually_async(lambda: pool.health()["there"].state != "connected")

    assert outcomes == ["sent"] * CALLS
