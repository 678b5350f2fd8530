"""Batches and the HTTP+SSE transport of 2024: sessions without one request for each message.

A batch is several messages in one POST, which only sessions of revision 2025-03-26 have. The gateway serves
them concurrently, each as if it came alone. In the 2024 transport a GET opens the one stream, which carries
the responses to POSTed messages. The selection in the URL of the GET applies while the stream is open; a POST
names only the stream. The stream lives on the node that opened it, and only that node serves its messages.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from toolgate import errors
from toolgate.model.principals import Principal
from toolgate.model.protocol import LEGACY_VERSIONS, PROTOCOL_VERSION_KEY
from toolgate.surfaces.http.messages import EVENT_HEADERS, Headers, Responder, encode_event
from toolgate.surfaces.http.parsing import is_small_and_flat, parse_json, parse_off_loop, parse_query
from toolgate.surfaces.mcp.dispatch import trace_request
from toolgate.surfaces.mcp.exchange import CallerBinding, McpExchange, parse_caller
from toolgate.surfaces.mcp.jsonrpc import ClientResponse, McpMessage, parse_message
from toolgate.surfaces.mcp.responses import send_changes, send_error, send_result
from toolgate.surfaces.mcp.session import ClientSession
from toolgate.surfaces.mcp.stateful import SessionClient, StatefulHandler

_log: Final = logging.getLogger(__name__)


class HeldResponder:
    """Holds the response to one message of a batch or stream, which has no place for a status or headers."""

    def __init__(self, whole: Responder) -> None:
        """Create it in the task that serves the message."""
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self._whole = whole
        self.body = b""

    def add_headers(self, headers: Headers) -> None:
        """Nothing: the whole response has its own."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        del status, headers
        self.body = body

    def send_message(self, message: bytes) -> bool:
        return self._whole.send_message(message)

    def start(self, status: int, headers: Headers) -> None:
        """Nothing: the whole response starts on its own."""

    async def write(self, chunk: bytes) -> None:
        await self._whole.write(chunk)

    def end(self) -> None:
        """Nothing: the whole response ends on its own."""


@contextmanager
def responding_with_errors(responder: HeldResponder, request_id: bytes | None) -> Iterator[None]:
    """Make an error in the block the response to one message. The other messages continue."""
    try:
        yield
    except errors.CallCancelled:
        pass  # the client that cancelled it expects no response
    except errors.ToolgateError as exc:
        send_error(responder, exc, request_id=request_id)
    except Exception:  # the last handler of a message
        _log.exception("a request failed")
        send_error(responder, errors.ToolgateError("internal error"), request_id=request_id)


BATCH_VERSION: Final = "2025-03-26"  # the one revision with batches: the next one, 2025-06-18, removed them
MAX_BATCH: Final = 64
"""Messages in one batch: as many as may wait for responses on the stream of a 2024 client."""

BatchPart = McpMessage | ClientResponse | errors.ToolgateError

_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def serve_batch(stateful: StatefulHandler, exchange: McpExchange) -> None:
    """Serve one POST of several messages. Raises an error that rejects the batch as a whole.

    The responses are one array, in the order of their requests.
    """
    session, principal = stateful.session(exchange), exchange.principal
    if session.version != BATCH_VERSION:
        raise errors.InvalidRequest(
            f"batches are served in sessions of revision {BATCH_VERSION} only",
            hint="send each message in its own request",
        )
    parts = await parse_off_loop(parse_batch, exchange.request.body)
    held, most = 0, session.limits.max_batch_bytes

    async def serve(part: BatchPart) -> bytes:
        """The response to one message; empty for a notification."""
        nonlocal held
        responder = HeldResponder(exchange.responder)
        request_id = part.id if isinstance(part, McpMessage) else None
        with responding_with_errors(responder, request_id):
            if isinstance(part, errors.ToolgateError):
                raise part
            if isinstance(part, ClientResponse):
                session.resolve(part, principal)
            else:
                part.check()
                if part.method == "initialize":
                    raise errors.InvalidRequest("`initialize` is never part of a batch")
                client = SessionClient(session, responder, principal, accepts_stream=exchange.accepts_stream)
                with trace_request(stateful.gateway.tracer, part, session.principal_id):
                    await stateful.respond(part, client)
        if responder.body and held and held + len(responder.body) > most:
            message = f"the responses to this batch have more than {most} bytes: this one is left out"
            hint = "the request was served; send requests with large results alone"
            send_error(responder, errors.OutputTooLarge(message, hint=hint), request_id=request_id)
        else:
            held += len(responder.body)
        return responder.body

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(serve(part)) for part in parts]
    responses = [body for task in running if (body := task.result())]
    if responses:
        exchange.responder.send(200, b"[%b]" % b",".join(responses))
    else:
        exchange.responder.send(202, b"")


def parse_batch(body: bytes) -> list[BatchPart]:
    """The messages of a batch; an invalid one is the error it raises. Raises InvalidRequest."""
    try:
        if not is_small_and_flat(body):
            parse_json(body)
        raws = _decode_parts(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        parse_json(body)
        raise errors.InvalidRequest("the body is not a batch of JSON-RPC messages") from exc
    if not 0 < len(raws) <= MAX_BATCH:
        raise errors.InvalidRequest(f"a batch has 1 to {MAX_BATCH} messages, and this one {len(raws)}")
    parts: list[BatchPart] = []
    for raw in raws:
        try:
            parts.append(parse_message(bytes(raw)))
        except errors.ToolgateError as exc:
            parts.append(exc)
    return parts


SESSION_QUERY: Final = b"sessionId="  # the start of the query of a POST to a stream; the gateway writes it

_VERSION_KEY_BYTES: Final = PROTOCOL_VERSION_KEY.encode()
_VERSIONS_SENT: Final = frozenset({None, *(version.encode() for version in LEGACY_VERSIONS)})


@dataclass(slots=True)
class _SseStream:
    session: ClientSession
    binding: CallerBinding
    """What the URL of the GET selects; the session may have narrowed that further."""
    responder: Responder
    requests: asyncio.TaskGroup
    pending: int = 0
    """Requests that wait for their responses."""


class SseTransport:
    """Serves clients of the 2024 transport. Their messages go to the handler of session-based revisions."""

    def __init__(self, stateful: StatefulHandler) -> None:
        self._stateful = stateful
        self._sessions = stateful.sessions
        self._open: dict[bytes, _SseStream] = {}

    async def stream(self, exchange: McpExchange, binding: CallerBinding) -> None:
        """GET: serve one stream until its client leaves, its credential expires or the endpoint closes."""
        # Rejects the scope before anything is opened for it. A list checks its size later.
        binding.calling_view(self._stateful.gateway)
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
                    # Where to post to. Only a path, so that no client is sent to another origin.
                    target = b"%b?%b%b" % (quote(exchange.request.path).encode(), SESSION_QUERY, session_id)
                    try:
                        await responder.write(b"event: endpoint\ndata: %b\n\n" % target)
                        await send_changes(responder, subscription)
                    finally:
                        del self._open[session_id]
                responder.end()
        finally:
            with suppress(errors.UnknownSession):  # a DELETE may have been first
                self._sessions.end(session_id, exchange.principal)

    async def post(self, exchange: McpExchange, message: McpMessage) -> None:
        """POST: accept a message; its response, if any, comes on the stream."""
        stream = self.find_stream(exchange)
        if message.id is None:
            client = SessionClient(
                stream.session, exchange.responder, exchange.principal, accepts_stream=True
            )
            await self._stateful.respond(message, client)
            return
        most = self._sessions.limits.max_stream_requests
        if stream.pending >= most:
            problem = f"{most} requests on this stream wait for their responses"
            raise errors.SessionLimit(problem, hint="send the request again after a response")
        stream.pending += 1
        stream.requests.create_task(self._serve(stream, message, message.id, exchange.principal))
        exchange.responder.send(202, b"")

    def find_stream(self, exchange: McpExchange) -> _SseStream:
        """The stream that a POST names. Raises UnknownSession and InvalidRequest."""
        request = exchange.request
        parse_caller(exchange.principal, request.path, b"")  # only an existing path takes messages
        session_id = parse_query(request.query, {"sessionId"})["sessionId"].encode()
        if b"mcp-session-id" in exchange.headers:
            raise errors.InvalidRequest("the query and `Mcp-Session-Id` both name a session")
        stream = self._open.get(session_id)
        if stream is None or stream.session.principal_id != exchange.principal.id:
            self._stateful.find_session(exchange, session_id)
            raise errors.UnknownSession(
                "the stream of this session is not open on this node",
                hint="open it again with GET; with several nodes, route all requests of a client to one node",
            )
        return stream

    async def _serve(
        self, stream: _SseStream, message: McpMessage, request_id: bytes, principal: Principal
    ) -> None:
        responder, session = HeldResponder(stream.responder), stream.session
        try:
            with (
                responding_with_errors(responder, request_id),
                trace_request(self._stateful.gateway.tracer, message, session.principal_id),
            ):
                if message.method == "initialize":
                    selected = stream.binding.for_principal(principal)
                    session.binding, session.version, session.capabilities, result = self._stateful.negotiate(
                        message, selected, LEGACY_VERSIONS
                    )
                    send_result(responder, request_id, result)
                else:
                    _check_stateful(message)
                    client = SessionClient(session, responder, principal, accepts_stream=True)
                    await self._stateful.respond(message, client)
            if responder.body:
                # Waits while the client is slow to read.
                await stream.responder.write(encode_event(responder.body))
        finally:
            stream.pending -= 1


def wants_stream(exchange: McpExchange) -> bool:
    """Whether a GET without a session is a 2024 client's: it accepts events and names no later revision."""
    accepted, version = exchange.headers.get(b"accept", b""), exchange.headers.get(b"mcp-protocol-version")
    return b"text/event-stream" in accepted.lower() and version in _VERSIONS_SENT


def _check_stateful(message: McpMessage) -> None:
    """Reject the stateless revision, so that a client that probes for it opens a session."""
    if message.method == "server/discover":
        raise errors.MethodNotFound("no method `server/discover` on this transport")
    if _VERSION_KEY_BYTES in bytes(message.params.get("_meta", b"")):
        raise errors.UnsupportedVersion(
            "the stateless revision is not served on this transport",
            hint="send it to the same URL over streamable HTTP, or `initialize` here",
            data={"supported": LEGACY_VERSIONS},
        )
