"""Opening links to test servers, and a listener that keeps what it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request, Script
from toolgate.model.servers import EMPTY, HttpEndpoint, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    START_TIMEOUT_S,
    Connector,
    Params,
    RpcResponse,
    ServerConnection,
)
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import DEFAULT_LIMITS, HttpLimits
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.streamable import StreamableConnector

SECRET = "sk-canary/0123456789"
ENVIRON = {"TOKEN": SECRET}


class RecordingListener:
    """A listener that keeps everything."""

    purpose: Final = "start"

    def __init__(self) -> None:
        self.notifications: list[tuple[str, bytes]] = []
        self.closings: list[str] = []
        self._wakers: list[asyncio.Event] = []

    def on_notification(self, method: str, params: bytes) -> None:
        self.notifications.append((method, params))
        for waker in self._wakers:
            waker.set()

    def on_session_replaced(self) -> bool:
        return True

    def on_closed(self, reason: str) -> None:
        self.closings.append(reason)

    def on_stderr(self, text: bytes) -> None:
        raise AssertionError("an HTTP server has no standard error")

    def on_reading(self) -> None:
        """No test asks."""

    async def until_notified(self, times: int) -> None:
        waker = asyncio.Event()
        self._wakers.append(waker)
        while len(self.notifications) < times:
            waker.clear()
            await waker.wait()


def record_for(url: str, headers: Mapping[str, str] = EMPTY, auth_ref: str | None = None) -> ServerRecord:
    return ServerRecord(
        server_id="there",
        transport="streamable_http",
        http=HttpEndpoint(url=url, headers=headers, auth_ref=auth_ref),
    )


def opener(limits: HttpLimits | None = None, *, start_timeout_s: float = START_TIMEOUT_S) -> Connector:
    resolver = EndpointResolver(Secrets(ENVIRON), Egress(allow_private=True), limits or DEFAULT_LIMITS)
    return StreamableConnector(resolver, start_timeout_s=start_timeout_s)


async def open_link(
    record: ServerRecord,
    received: RecordingListener | None = None,
    *,
    known_revision: Revision | None = None,
    limits: HttpLimits | None = None,
    capabilities: bytes = b"{}",
) -> ServerConnection:
    """Its clients can be asked nothing, unless `capabilities` say otherwise."""
    open_it = opener(limits)
    return await open_it(
        record, received or RecordingListener(), known_revision=known_revision, capabilities=capabilities
    )


@asynccontextmanager
async def linked(
    mcp: FakeMcp,
    received: RecordingListener | None = None,
    *,
    limits: HttpLimits | None = None,
    auth_ref: str | None = None,
) -> AsyncIterator[tuple[FaultyHttp, ServerConnection]]:
    """A server and an open link to it, all within ten seconds."""
    async with asyncio.timeout(60), FaultyHttp(mcp) as server:
        link = await open_link(record_for(server.url, auth_ref=auth_ref), received, limits=limits)
        try:
            yield server, link
        finally:
            await link.aclose()


def params(**members: object) -> Params:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in members.items()}


async def call(link: ServerConnection, value: object = 1, *, timeout_s: float = 60.0) -> RpcResponse:
    headers = {"Mcp-Name": "echo"}
    return await link.request(
        "tools/call", params(name="echo", arguments=value), timeout_s=timeout_s, headers=headers
    )


def echoed(value: object = 1) -> RpcResponse:
    return RpcResponse(result=json.dumps({"echo": value}).encode())


def calling(era: str, script: Script) -> FakeMcp:
    """A server whose calls go wrong."""
    return FakeMcp(era, faults={"tools/call": script})


OK = RpcResponse(result=b'{"said":"ok"}')


def response(request: Request, result: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": result or {"said": "ok"}}


async def hang(request: Request, peer: Peer) -> None:
    await peer.gone()
