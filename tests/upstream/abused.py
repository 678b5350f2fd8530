"""A node's pool with one HTTP server behind a line that a test can spoil, and a healthy one next to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tests.upstream.fault_proxy import FaultProxy, open_fault_proxy
from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from tests.upstream.faulty_sse import Sse
from tests.upstream.faulty_sse import record_for as sse_record_for
from tests.upstream.http_links import opener, record_for
from tests.upstream.http_pools import ANY
from tests.upstream.memory_link import params
from toolgate.model.servers import ServerBudgets, ServerRecord
from toolgate.upstream.connection.contract import PoolLimits
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import DEFAULT_LIMITS as DEFAULT_HTTP
from toolgate.upstream.http.client_connection import HttpLimits
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import Pool

HASTY = PoolLimits(backoff_s=0.01, reconnect_max_s=0.02, max_starts=1000, list_retry_s=0.01)
"""Waits that a test need not notice."""
QUICK = HttpLimits(connect_timeout_s=0.1, cooldown_s=0.02)


async def offer_echo(request: Request, peer: Peer) -> None:
    """An honest answer to `tools/list`."""
    tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
    await peer.result(
        request, {"tools": tools, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
    )


@dataclass(frozen=True)
class Abused:
    """`bad` is reached over `proxy`, `good` directly."""

    pool: Pool
    proxy: FaultProxy
    server: FaultyHttp
    """What `bad` is."""
    neighbour: FaultyHttp
    """What `good` is."""

    @property
    def health(self) -> ServerHealth:
        return self.pool.health()["bad"]

    async def call(self, value: Any = 1, *, server_id: str = "bad") -> Any:
        """What the tool was told, as it says."""
        response = await self.pool.call(server_id, "tools/call", params("echo", value=value))
        assert response.rpc.result is not None, response.rpc.error
        return msgspec.json.decode(response.rpc.result)["echo"]["value"]

    async def recovers(self, value: str = "well again") -> None:
        """Returns once a call is answered."""
        while True:
            try:
                assert await self.call(value) == value
            except Exception:
                await asyncio.sleep(0.01)
            else:
                return

    def executed(self, value: Any) -> int:
        """How often a call with this value arrived."""
        calls = self.server.seen("tools/call")
        return sum(request.message["params"]["arguments"] == {"value": value} for request in calls)


class FakeSse(Sse):
    """A server of the 2024 transport that lists its tool."""

    def respond(self, request: Request) -> dict[str, Any]:
        if request.rpc == "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            return {"jsonrpc": "2.0", "id": request.message["id"], "result": result}
        return super().respond(request)


@asynccontextmanager
async def open_abused(
    mcp: FakeMcp | FakeSse, *, timeout_s: float = 60.0, concurrency: int = 16, http: HttpLimits | None = None
) -> AsyncIterator[Abused]:
    """Both servers, connected and listed, all within a minute."""
    if isinstance(mcp, FakeMcp):
        mcp.faults.setdefault("tools/list", offer_echo)
    honest = FakeMcp(faults={"tools/list": offer_echo})
    budgets = ServerBudgets(tool_timeout_ms=round(timeout_s * 1000), max_concurrency=concurrency)
    async with (
        asyncio.timeout(60),
        FaultyHttp(mcp) as server,
        FaultyHttp(honest) as neighbour,
        open_fault_proxy(server.port) as proxy,
        Pool(
            {
                "streamable_http": opener(http),
                "http_sse_legacy": SseLegacyConnector(
                    EndpointResolver(Secrets({}), ANY, limits=http or DEFAULT_HTTP)
                ),
            },
            on_change=lambda _: None,
            limits=HASTY,
        ) as pool,
    ):
        pool.apply(
            {
                "bad": _record("bad", proxy.port, budgets, is_sse=isinstance(mcp, FakeSse)),
                "good": _record("good", neighbour.port, ServerBudgets()),
            }
        )
        await pool.settled(["bad", "good"])
        assert {one.state for one in pool.health().values()} == {"connected"}
        yield Abused(pool, proxy, server, neighbour)


def _record(server_id: str, port: int, budgets: ServerBudgets, *, is_sse: bool = False) -> ServerRecord:
    record = (sse_record_for if is_sse else record_for)(f"http://127.0.0.1:{port}/mcp")
    return replace(record, server_id=server_id, budgets=budgets, prewarm=True)
