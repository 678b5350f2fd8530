"""BUD-8 in numbers: callers that go away at any moment leave no place, no line, no connection behind."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from tests.scenarios.soak import rounds
from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from tests.upstream.faulty_sse import Sse
from tests.upstream.faulty_sse import record_for as sse_record_for
from tests.upstream.http_links import opener, record_for
from tests.upstream.http_pools import ANY
from tests.upstream.memory_link import params
from tests.upstream.stdio_stage import faulty
from toolgate.model.servers import ServerBudgets, ServerRecord, Transport
from toolgate.upstream.connection.contract import Connector, PoolLimits
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.pool.pool import Pool
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

SEEDS = range(rounds(suite=2, soak=50))
ROOM = 4
LIMITS = PoolLimits(backoff_s=0.01, reconnect_max_s=0.02, max_starts=1000, list_retry_s=0.01)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@dataclass(frozen=True)
class Stage:
    """A server of one transport, in a pool with little room for it."""

    pool: Pool
    leftovers: Callable[[], bool]
    """Whether the transport still holds more than it may."""

    async def call(self, text: str) -> bool:
        response = await self.pool.call("one", "tools/call", params("echo", text=text))
        return response.rpc.result is not None and text.encode() in response.rpc.result


async def dawdle(request: Request, peer: Peer) -> None:
    """Answer right, sooner or later."""
    await asyncio.sleep(random.random() * 0.004)
    await peer.result(request, request.message["params"])


@asynccontextmanager
async def open_pool(transport: Transport, opener: Connector, record: ServerRecord) -> AsyncIterator[Pool]:
    budgets = ServerBudgets(max_concurrency=ROOM)
    async with (
        asyncio.timeout(60),
        Pool({transport: opener}, on_change=lambda _: None, limits=LIMITS) as pool,
    ):
        pool.apply({"one": replace(record, server_id="one", budgets=budgets)})
        await pool.settled(["one"])
        yield pool


@asynccontextmanager
async def open_http(era: str) -> AsyncIterator[Stage]:
    mcp = FakeMcp(era, faults={"tools/call": dawdle})
    async with (
        FaultyHttp(mcp) as server,
        open_pool("streamable_http", opener(), record_for(server.url)) as pool,
    ):
        # A legacy server is told of each call that was given up, next to those in flight.
        yield Stage(pool, lambda: server.open_connections > ROOM + 32)


class DawdlingSse(Sse):
    """Answers right, sooner or later, and in any order."""

    async def take(self, request: Request, peer: Peer) -> None:
        await asyncio.sleep(random.random() * 0.004)
        await super().take(request, peer)


@asynccontextmanager
async def open_sse(_: str) -> AsyncIterator[Stage]:
    opener = SseLegacyConnector(EndpointResolver(Secrets({}), ANY))
    async with (
        FaultyHttp(DawdlingSse()) as server,
        open_pool("http_sse_legacy", opener, sse_record_for(server.url)) as pool,
    ):
        yield Stage(pool, lambda: server.open_connections > ROOM + 33)


@asynccontextmanager
async def open_stdio(_: str) -> AsyncIterator[Stage]:
    warden = Warden(max_children=1)
    try:
        async with open_pool("stdio", StdioConnector(warden, Secrets(os.environ)), faulty()) as pool:
            yield Stage(pool, lambda: False)
    finally:
        await warden.aclose()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("open_stage", "era"),
    [(open_http, "modern"), (open_http, "legacy"), (open_sse, "legacy"), (open_stdio, "legacy")],
    ids=["http modern", "http legacy", "sse", "stdio"],
)
async def test_bud_8_callers_that_go_away_at_any_moment_leave_nothing_behind(
    open_stage: Callable[[str], AbstractAsyncContextManager[Stage]], era: str, seed: int
) -> None:
    chance = random.Random(seed)
    async with open_stage(era) as stage:
        for _ in range(5):
            calls = [asyncio.ensure_future(stage.call(f"n{number}")) for number in range(ROOM + 40)]
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(chance.random() * 0.002)
                for call in chance.sample(calls, chance.randrange(1, 12)):
                    call.cancel()
            chance.shuffle(calls)
            for call in calls[: chance.randrange(len(calls))]:
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            health = stage.pool.health()["one"]

            assert {type(one) for one in ended if one is not True} <= {asyncio.CancelledError}
            assert (health.in_flight, health.queued, health.restarts) == (0, 0, 0)
        assert (
            await asyncio.gather(*(stage.call(f"after {number}") for number in range(ROOM))) == [True] * ROOM
        )
        assert not stage.leftovers()
