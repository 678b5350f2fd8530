"""The HTTP+SSE transport of 2024: a GET opens the one stream, which carries the responses to what is POSTed.

What the URL of the GET selects holds while the stream is open; a POST names nothing but the stream. The
stream lives on the node that opened it, and only that node serves what is posted to it.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from toolgate.errors import InvalidRequest, MethodNotFound, SessionLimit, UnknownSession, UnsupportedVersion
from toolgate.model.protocol import LEGACY_VERSIONS, PROTOCOL_VERSION_KEY
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.http.parsing import parse_query
from toolgate.surfaces.http.responder import EVENT_HEADERS, encode_event
from toolgate.surfaces.mcp.binding import CallerBinding, parse_caller
from toolgate.surfaces.mcp.dispatch import trace_request
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.responses import (
    HeldResponder,
    responding_with_errors,
    send_empty,
    send_result,
)
from toolgate.surfaces.mcp.session import ClientSession, ClientSessions
from toolgate.surfaces.mcp.stateful import StatefulHandler
from toolgate.surfaces.mcp.streams import make_change_encoder, send_changes
from toolgate.telemetry.spans import Tracer

SESSION_QUERY: Final = b"sessionId="
"""How the query of a POST to a stream begins: the gateway wrote it so."""

_VERSION_KEY_BYTES: Final = PROTOCOL_VERSION_KEY.encode()
_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in LEGACY_VERSIONS)})


@dataclass(slots=True)
class _SseStream:
    """An open stream."""

    session: ClientSession
    binding: CallerBinding
    """What the URL of the GET selects; the session may have narrowed that further."""
    responder: Responder
    requests: asyncio.TaskGroup
    unanswered: int = 0


class SseTransport:
    """Serves clients of the 2024 transport. Their messages go to the handler of session-based revisions."""

    def __init__(
        self, stateful: StatefulHandler, sessions: ClientSessions, *, tracing: Tracer | None = None
    ) -> None:
        self._tracing = tracing
        self._stateful = stateful
        self._sessions = sessions
        self._open: dict[bytes, _SseStream] = {}

    async def stream(self, exchange: McpExchange, binding: CallerBinding) -> None:
        """GET: serve one stream until its client leaves, its credential expires or the endpoint closes."""
        self._stateful.check_scope(binding)
        session_id = self._sessions.issue(binding.caller, LEGACY_VERSIONS[-1])
        session = self._sessions.find(session_id, exchange.principal)
        try:
            with self._stateful.open_stream(exchange, session) as subscription:
                responder = exchange.responder
                responder.start(200, EVENT_HEADERS)
                # Requests in flight when the stream has to end are still served; if the client left,
                # cancelled.
                async with asyncio.TaskGroup() as requests:
                    self._open[session_id] = _SseStream(session, binding, responder, requests)
                    try:
                        await responder.write(_encode_endpoint(exchange.request.path, session_id))
                        await send_changes(responder, subscription, make_change_encoder(subscription))
                    finally:
                        del self._open[session_id]
                responder.end()
        finally:
            with suppress(UnknownSession):  # a DELETE may have been first
                self._sessions.end(session_id, exchange.principal)

    async def post(self, exchange: McpExchange, message: McpMessage) -> None:
        """POST: accept a message; its response, if any, comes on the stream."""
        stream = self._find(exchange)
        binding = stream.session.bind(exchange.principal)
        if message.id is None:
            await self._stateful.answer(exchange.responder, message, stream.session, binding=binding)
            return
        if stream.unanswered >= self._sessions.limits.max_unanswered:
            raise SessionLimit(
                f"{self._sessions.limits.max_unanswered} requests on this stream have no response yet",
                hint="wait for some of them",
            )
        stream.unanswered += 1
        stream.requests.create_task(self._serve(stream, message, message.id, binding=binding))
        send_empty(exchange.responder, 202)

    def session(self, exchange: McpExchange) -> ClientSession:
        """The session whose stream a POST names. Raises UnknownSession and InvalidRequest."""
        return self._find(exchange).session

    def _find(self, exchange: McpExchange) -> _SseStream:
        request = exchange.request
        parse_caller(
            exchange.principal, request.path, b""
        )  # a path that does not exist takes no messages either
        session_id = parse_query(request.query, {"sessionId"})["sessionId"].encode()
        if b"mcp-session-id" in exchange.headers:
            raise InvalidRequest("the query and `Mcp-Session-Id` both name a session")
        stream = self._open.get(session_id)
        if stream is None or stream.session.principal_id != exchange.principal.id:
            self._stateful.find_session(exchange, session_id)
            raise UnknownSession(
                "the stream of this session is not open on this node",
                hint="open it again with GET; with several nodes, send all of a client's to the same one",
            )
        return stream

    async def _serve(
        self, stream: _SseStream, message: McpMessage, request_id: bytes, *, binding: CallerBinding
    ) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of the stream's task group
        responder = HeldResponder(stream.responder, task)
        try:
            with (
                responding_with_errors(responder, request_id),
                trace_request(self._tracing, message, stream.session.principal_id),
            ):
                if message.method == "initialize":
                    self._initialize(stream, message, responder, binding=binding)
                else:
                    _check_stateful(message)
                    await self._stateful.answer(responder, message, stream.session, binding=binding)
            if responder.body:
                # Waits while the client is slow to read.
                await stream.responder.write(encode_event(responder.body))
        finally:
            stream.unanswered -= 1

    def _initialize(
        self, stream: _SseStream, message: McpMessage, responder: Responder, *, binding: CallerBinding
    ) -> None:
        selected = stream.binding.for_principal(binding.caller.principal)
        handshake = self._stateful.negotiate(message, selected, LEGACY_VERSIONS)
        session = stream.session
        session.rebind(handshake.binding)
        session.version = handshake.version
        session.capabilities = handshake.capabilities
        send_result(responder, message.id or b"null", handshake.result)


def wants_stream(exchange: McpExchange) -> bool:
    """Whether a GET without a session is of a 2024 client: it accepts events and names no later revision."""
    accepted = (exchange.header(b"accept") or "").lower()
    return "text/event-stream" in accepted and exchange.headers.get(b"mcp-protocol-version") in _VERSIONS_SENT


def _check_stateful(message: McpMessage) -> None:
    """Reject the stateless revision, so that a client that probes for it opens a session."""
    if message.method == "server/discover":
        raise MethodNotFound("no method `server/discover` on this transport")
    if _VERSION_KEY_BYTES in bytes(message.params.get("_meta", b"")):
        raise UnsupportedVersion(
            "the stateless revision is not served on this transport",
            hint="send it to the same URL over streamable HTTP, or `initialize` here",
            data={"supported": LEGACY_VERSIONS},
        )


def _encode_endpoint(path: str, session_id: bytes) -> bytes:
    """The first event: where to post to. Only a path, so that no client is sent to another origin."""
    return b"event: endpoint\ndata: %b?%b%b\n\n" % (quote(path).encode(), SESSION_QUERY, session_id)
