"""The HTTP+SSE transport of 2024: a GET opens the one stream, which carries the answers to what is POSTed.

What the URL of the GET asks for holds for as long as the stream does; a POST can name nothing but the
stream. The stream lives on the node where it was opened, and so must all that is posted to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from toolgate.errors import (
    CallCancelled,
    InvalidRequest,
    MethodNotFound,
    SessionLimit,
    ToolgateError,
    UnknownSession,
    UnsupportedVersion,
)
from toolgate.model.protocol import LEGACY_VERSIONS, PROTOCOL_VERSION_KEY
from toolgate.surfaces.http.messages import Headers, Responder
from toolgate.surfaces.http.parsing import parse_query
from toolgate.surfaces.http.responder import EVENT_HEADERS, encode_event
from toolgate.surfaces.mcp.binding import CallerBinding, parse_mcp_url
from toolgate.surfaces.mcp.dispatch import trace_request
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.jsonrpc import McpMessage
from toolgate.surfaces.mcp.responses import send_empty, send_error, send_result
from toolgate.surfaces.mcp.session import ClientSession, ClientSessions
from toolgate.surfaces.mcp.stateful import StatefulHandler
from toolgate.surfaces.mcp.streams import make_change_encoder, send_changes
from toolgate.telemetry.spans import Tracer

SESSION_QUERY: Final = b"sessionId="
"""How the query of a POST to a stream begins: the gateway itself has written it so."""
MAX_UNANSWERED: Final = 64
"""Requests on one stream that may wait for their answers."""

_VERSION_KEY_BYTES: Final = PROTOCOL_VERSION_KEY.encode()
_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in LEGACY_VERSIONS)})

_log = logging.getLogger(__name__)


class _EventResponder:
    """Answers one message on the stream. A status and headers have no place there, and are not missed."""

    def __init__(self, stream: Responder, task: "asyncio.Task[None]") -> None:
        self._stream = stream
        self._answer = b""
        self.task = task

    def add_headers(self, headers: Headers) -> None:
        """The stream has its own."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        del status, headers
        self._answer = encode_event(body) if body else b""

    def say(self, message: bytes) -> bool:
        return self._stream.say(message)

    def start(self, status: int, headers: Headers) -> None:
        """It has started long ago."""

    async def write(self, chunk: bytes) -> None:
        await self._stream.write(chunk)

    def end(self) -> None:
        """It goes on."""

    async def flush(self) -> None:
        """Put what was sent on the stream. Waits while the client is slow to read."""
        await self._stream.write(self._answer)


@dataclass(slots=True)
class _SseStream:
    """One that is open."""

    session: ClientSession
    binding: CallerBinding
    """What the URL of the GET asks for; the session may have narrowed that further."""
    responder: Responder
    requests: asyncio.TaskGroup
    unanswered: int = 0


class SseTransport:
    """Serves clients of the 2024 transport. What they ask for is answered by the handshake era."""

    def __init__(
        self, legacy: StatefulHandler, sessions: ClientSessions, *, tracing: Tracer | None = None
    ) -> None:
        self._tracing = tracing
        self._legacy = legacy
        self._sessions = sessions
        self._open: dict[bytes, _SseStream] = {}

    async def stream(self, exchange: McpExchange, binding: CallerBinding) -> None:
        """GET: serve one stream until its client leaves, its credential lapses or the door closes."""
        self._legacy.check_scope(binding)
        with (
            self._session(exchange, binding) as (session_id, session),
            self._legacy.listening(exchange, session) as subscription,
        ):
            responder = exchange.responder
            responder.start(200, EVENT_HEADERS)
            # What is under way when the stream has to end is still answered; if the client left, cancelled.
            async with asyncio.TaskGroup() as requests:
                self._open[session_id] = _SseStream(session, binding, responder, requests)
                try:
                    await responder.write(_encode_endpoint(exchange.request.path, session_id))
                    await send_changes(responder, subscription, make_change_encoder(subscription))
                finally:
                    del self._open[session_id]
            responder.end()

    async def post(self, exchange: McpExchange, message: McpMessage) -> None:
        """POST: take a message; its answer, if any, comes on the stream."""
        stream = self._find(exchange)
        binding = stream.session.bind(exchange.principal)
        if message.id is None:
            await self._legacy.answer(exchange.responder, message, stream.session, binding=binding)
            return
        if stream.unanswered >= MAX_UNANSWERED:
            raise SessionLimit(
                f"{MAX_UNANSWERED} requests on this stream have no answer yet", hint="wait for some of them"
            )
        stream.unanswered += 1
        stream.requests.create_task(self._answer(stream, message, message.id, binding=binding))
        send_empty(exchange.responder, 202)

    def session(self, exchange: McpExchange) -> ClientSession:
        """Whose stream a POST names. Raises UnknownSession and InvalidRequest."""
        return self._find(exchange).session

    @contextlib.contextmanager
    def _session(
        self, exchange: McpExchange, binding: CallerBinding
    ) -> Iterator[tuple[bytes, ClientSession]]:
        session_id = self._sessions.issue(binding.caller, LEGACY_VERSIONS[-1])
        session = self._sessions.find(session_id, exchange.principal)
        try:
            yield session_id, session
        finally:
            with contextlib.suppress(UnknownSession):  # a DELETE may have been first
                self._sessions.end(session_id, exchange.principal)

    def _find(self, exchange: McpExchange) -> _SseStream:
        request = exchange.request
        parse_mcp_url(request.path, b"")  # a path that does not exist takes no messages either
        session_id = parse_query(request.query, {"sessionId"})["sessionId"].encode()
        if b"mcp-session-id" in exchange.headers:
            raise InvalidRequest("a session stands in the query and in `Mcp-Session-Id`")
        stream = self._open.get(session_id)
        if stream is None or stream.session.principal_id != exchange.principal.id:
            self._legacy.find_session(exchange, session_id)
            raise UnknownSession(
                "the stream of this session is not open on this node",
                hint="open it again with GET; with several nodes, send all of a client's to the same one",
            )
        return stream

    async def _answer(
        self, stream: _SseStream, message: McpMessage, request_id: bytes, *, binding: CallerBinding
    ) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of the stream's task group
        responder = _EventResponder(stream.responder, task)
        try:
            await self._serve(stream, message, request_id, responder, binding=binding)
            await responder.flush()
        finally:
            stream.unanswered -= 1

    async def _serve(
        self,
        stream: _SseStream,
        message: McpMessage,
        request_id: bytes,
        responder: _EventResponder,
        *,
        binding: CallerBinding,
    ) -> None:
        try:
            if self._tracing is None:
                await self._dispatch(stream, message, request_id, responder, binding=binding)
            else:
                with trace_request(self._tracing, message, stream.session.principal_id):
                    await self._dispatch(stream, message, request_id, responder, binding=binding)
        except CallCancelled:
            return  # on this transport nobody waits for an answer to what was taken back
        except ToolgateError as exc:
            send_error(responder, exc, request_id=request_id)
        except Exception:  # the request ends here, whatever went wrong; the stream goes on
            _log.exception("a request failed")
            send_error(responder, ToolgateError("internal error"), request_id=request_id)

    async def _dispatch(
        self,
        stream: _SseStream,
        message: McpMessage,
        request_id: bytes,
        responder: _EventResponder,
        *,
        binding: CallerBinding,
    ) -> None:
        if message.method == "initialize":
            opened = stream.binding.for_principal(binding.caller.principal)
            agreed = self._legacy.negotiate(message, opened, LEGACY_VERSIONS)
            session = stream.session
            session.rebind(agreed.binding)
            session.version = agreed.version
            session.capabilities = agreed.capabilities
            send_result(responder, request_id, agreed.result)
        else:
            _check_stateful(message)
            await self._legacy.answer(responder, message, stream.session, binding=binding)


def wants_stream(exchange: McpExchange) -> bool:
    """Whether a GET without a session is that of a 2024 client: it names the media, and no later revision."""
    accepted = (exchange.header(b"accept") or "").lower()
    return "text/event-stream" in accepted and exchange.headers.get(b"mcp-protocol-version") in _VERSIONS_SENT


def _check_stateful(message: McpMessage) -> None:
    """The stateless era is not served here: a client that probes for it is told to go on with the other."""
    if message.method == "server/discover":
        raise MethodNotFound("no method `server/discover` on this transport")
    if _VERSION_KEY_BYTES in bytes(message.params.get("_meta", b"")):
        raise UnsupportedVersion(
            "the stateless revision is not served on this transport",
            hint="send it to the same URL over streamable HTTP, or `initialize` here",
            data={"supported": LEGACY_VERSIONS},
        )


def _encode_endpoint(path: str, session_id: bytes) -> bytes:
    """The first event: where to post to. A path alone, so that no client is sent to another origin."""
    return b"event: endpoint\ndata: %b?%b%b\n\n" % (quote(path).encode(), SESSION_QUERY, session_id)
