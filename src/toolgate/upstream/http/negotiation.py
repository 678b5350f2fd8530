"""Negotiates with an HTTP server: how statuses and headers become evidence for `connection.negotiation`.

A status says less than a body, so the body is read first. A response that proves nothing about the protocol
revision (no connection, 401, 5xx) ends the start, and the gateway remembers nothing of it.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate.model.protocol import LEGACY_VERSIONS
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    Params,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.messages import (
    IncomingMessage,
    Redactor,
    encode_notification,
    encode_request,
    parse_response,
)
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpResponse
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.endpoint import HttpSession, RequestHeads, with_body
from toolgate.upstream.http.responses import PendingResponse, RequestRejected, ResponseMissing, retry_after_s

_NOTIFY_TIMEOUT_S: Final = 5.0
_SESSION_ID = re.compile(rb"[\x21-\x7e]{1,1024}")


@dataclass(frozen=True, slots=True)
class StreamableEndpoint:
    """One server over streamable HTTP: its connections, request heads, request numbers and client
    capabilities.
    """

    pool: HttpPool
    heads: RequestHeads
    redactor: Redactor
    numbers: Iterator[int]
    capabilities: bytes = SHARED_CAPABILITIES


class _ProtocolVersion(msgspec.Struct, rename="camel"):
    protocol_version: str = LEGACY_VERSIONS[0]


class _NullReceiver:
    """Drops a server's messages before the negotiation has ended: they concern no request."""

    def receive(self, message: IncomingMessage, request: bytes) -> None:
        """Drop it."""

    def deadline_of(self, _request: bytes, deadline: float, /) -> float:
        return deadline


class HttpNegotiation:
    """One negotiation with one server."""

    def __init__(self, endpoint: StreamableEndpoint) -> None:
        self._endpoint = endpoint
        self.session: HttpSession | None = None
        """The result of the handshake, if the server is session-based."""

    async def run(self, *, known_revision: Revision | None, timeout_s: float) -> ServerInfo:
        """Raises StartFailed, and TimeoutError."""
        capabilities = self._endpoint.capabilities
        async with asyncio.timeout(timeout_s):
            return await negotiate(
                self._request, self._notify, known_revision=known_revision, capabilities=capabilities
            )

    async def _request(self, method: str, params: Params, timeout_s: float) -> RpcResponse:
        heads = self._endpoint.heads
        head = heads.initialize() if method == "initialize" else heads.stateless(method)
        number = next(self._endpoint.numbers)
        pending = PendingResponse(b"%d" % number, _NullReceiver())
        try:
            http_response = await self._send(head, encode_request(number, method, params), timeout_s, pending)
            response = parse_response(pending.parse(http_response))
        except RequestRejected as exc:
            return interpret_rejection(exc)
        except ResponseMissing as exc:
            return _build_error(str(exc))
        if method == "initialize" and response.result is not None:
            self.session = _parse_session(response.result, http_response)
        return response

    async def _notify(self, method: str, params: Params) -> None:
        assert self.session is not None  # only a handshake sends a notification
        head = self._endpoint.heads.in_session(self.session)
        response = await self._send(head, encode_notification(method, params), _NOTIFY_TIMEOUT_S)
        if response.status >= 300:
            raise StartFailed(
                f"it answered `{method}` with status {response.status}", retry_after_s=retry_after_s(response)
            )

    async def _send(
        self, head: bytes, body: bytes, timeout_s: float, pending: PendingResponse | None = None
    ) -> HttpResponse:
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            # A negotiation has no effect, so it may be repeated if the server has closed the connection.
            return await self._endpoint.pool.send_repeatable(
                with_body(head, body), deadline=deadline, sink=pending
            )
        except ExchangeTimedOut as exc:
            raise StartFailed(f"no answer within {timeout_s:g} s", state="list_timeout") from exc
        except (ConnectFailed, ExchangeFailed) as exc:
            raise StartFailed(str(exc)) from exc


def interpret_rejection(rejected: RequestRejected) -> RpcResponse:
    """What an error status proves about the server; raises StartFailed if it proves nothing."""
    status = rejected.status
    if status in (401, 403):
        raise StartFailed(f"it wants authorization (status {status}): set `auth_ref`, `headers` or `oauth`")
    if 300 <= status < 400:
        raise StartFailed(f"it redirects (status {status}), which is not followed: register its real URL")
    wait_s = rejected.retry_after_s
    if status == 429 or (status >= 500 and (rejected.error is None or wait_s is not None)):
        asks = "" if wait_s is None else f", and asks to be left alone for {wait_s} s"
        raise StartFailed(f"it answered with status {status}{asks}", retry_after_s=wait_s)
    if rejected.error is not None:
        return RpcResponse(error=rejected.error)
    return _build_error(f"status {status}")


def _build_error(message: str) -> RpcResponse:
    return RpcResponse(error=msgspec.json.encode({"code": 0, "message": message}))


def _parse_session(result: bytes, response: HttpResponse) -> HttpSession | None:
    try:
        version = msgspec.json.decode(result, type=_ProtocolVersion).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return None  # `negotiate` rejects it
    if version not in LEGACY_VERSIONS:
        return None
    session_id = response.headers.get(b"mcp-session-id")
    if session_id is not None and not _SESSION_ID.fullmatch(session_id):
        raise StartFailed("its session id is not visible ASCII")  # it could not be sent back
    return HttpSession(version, session_id)
