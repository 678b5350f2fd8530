"""The listener and its HTTP/1.1 connections, on asyncio and httptools.

Everything that a client sends is bounded before it is stored. Invalid HTTP/1.1 ends the connection. The
handler gets one whole request at a time, and a response is sent in one write. The server ends slow and idle
connections, and drains all when it stops.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple, cast
from urllib.parse import unquote

import httptools

from toolgate.errors import BodyTooLarge, HeadTooLarge, InvalidRequest, SessionLimit, ToolgateError
from toolgate.model.http import HeadShape, parse_head_shape
from toolgate.surfaces.http.messages import (
    HttpHandler,
    HttpRequest,
    HttpResponder,
    encode_error,
    encode_http_response,
)

MAX_BODY_BYTES: Final = 4 * 1024 * 1024  # a choice: larger uploads come in parts (`packages.uploads`)
MAX_HEAD_BYTES: Final = 64 * 1024  # a query of 16 KiB, a session id of 7 KiB, tokens, and room for more
HEADER_COST: Final = 32
"""What a header counts in addition to its bytes, as in HTTP/2: thousands of empty headers use memory, too."""
MAX_BODY_PARTS: Final = 65_536
"""Pieces in which a body may arrive: a body in single bytes keeps the loop far busier than its size
suggests."""
MAX_DISCARDED_BYTES: Final = 8 * MAX_BODY_BYTES
"""How much of a rejected body is still read and dropped: most clients send the whole body before they read
the response, and would get a connection reset instead. `REQUEST_S` limits the time."""
MAX_PIPELINED: Final = 16  # a choice: requests that may wait on a connection; more end it
MAX_UNREAD_BYTES: Final = 1024 * 1024  # bytes that a client has not read, before a stream to it pauses
MAX_KNOWN_HEADS: Final = 4  # a choice: each is compared with what arrives
MAX_KNOWN_HEAD_BYTES: Final = 2_048
"""The size of a head that a connection remembers: a client sends the same few heads all the time."""
BACKLOG: Final = 4_096  # Linux's `net.core.somaxconn`
MAX_CONNECTIONS: Final = 10_000  # as many as a node holds sessions
KEEP_ALIVE_S: Final = 75.0  # nginx's `keepalive_timeout`
REQUEST_S: Final = 20.0  # how long a client may take to send a request, or to read what was written to it
SWEEP_S: Final = 5.0  # a quarter of `REQUEST_S`: how late a slow client is disconnected at most
SWEPT_AT_ONCE: Final = 500
"""Connections to check before yielding to other tasks: thousands may be overdue at the same moment."""

_log = logging.getLogger(__name__)


class KnownHead(NamedTuple):
    """The parsed form of a head that was seen before."""

    shape: HeadShape
    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]


@dataclass(slots=True, eq=False, repr=False)  # no repr: asyncio logs it, and its headers are secret
class HttpServerConnection(asyncio.Protocol):
    """One connection: asyncio's protocol and httptools' callbacks."""

    _owner: "HttpServer"
    _loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport = field(init=False)
    running: HttpResponder | None = None
    active_since: float = field(init=False)
    """When the client last began or finished a request."""
    is_mid_request: bool = False
    """Whether a request has begun to arrive and is incomplete."""
    _parser: httptools.HttpRequestParser = field(init=False)
    _waiting: list[tuple[HttpRequest, HttpResponder]] = field(default_factory=list)
    _drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless the client is slow to read."""
    _discarding: int = 0
    """How many bytes of a rejected body may still arrive. 0: no body was rejected."""
    _peer: str = ""
    _first: bytes = b""
    """The newest bytes, if they begin a request and no other request was incomplete."""
    _known: list[KnownHead] = field(default_factory=list)
    """The remembered heads, newest first."""
    _target: bytes = b""
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _repeated: set[bytes] = field(default_factory=set)
    _head_bytes: int = 0
    _is_in_head: bool = True
    _is_past_chunks: bool = False
    _parts: int = 0
    _body: bytes | bytearray = b""

    def __post_init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self.active_since = self._loop.time()
        self._drained.set()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self._peer = str(name[0]) if isinstance(name, tuple) and name else ""  # empty on a Unix socket
        self.transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        if not self._owner.add_connection(self):
            self._refuse(SessionLimit("this node has reached its limit of connections"))

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discarding = max(self._discarding - len(data), 0)
            if not self._discarding:
                self.transport.abort()
            return
        is_at_start = self.running is None and not self.is_mid_request
        if is_at_start and self._start_known(data):
            return
        self._first = data if is_at_start else b""
        was_past_chunks = self._is_past_chunks
        try:
            self._parser.feed_data(data)
            # The parser reports a header or trailer only when it is complete.
            if self._is_in_head or (was_past_chunks and self._is_past_chunks):
                self._count(len(data))
        except HeadTooLarge as exc:
            self._refuse(exc)
        except httptools.HttpParserCallbackError as exc:
            cause = exc.__context__
            self._refuse(cause if isinstance(cause, ToolgateError) else _invalid_http_error())
        except httptools.HttpParserError:
            self._refuse(_invalid_http_error())

    def _start_known(self, data: bytes) -> bool:
        """Start the single complete request in `data`, if its head is known."""
        for head in self._known:
            place = head.shape.locate(data)
            if place is not None:
                break
        else:
            return False
        begin, length = place
        if len(data) - begin != length:
            return False
        request = HttpRequest(head.method, head.path, head.query, head.headers, data[begin:], self._peer)
        keeps_alive = not self._owner.is_closing
        responder = HttpResponder(self.transport, self._drained, keeps_alive=keeps_alive, has_body=True)
        self._start(request, responder)
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        del self._parser  # a reference cycle: bodies would stay until the garbage collector runs
        self._owner.remove_connection(self)
        self._waiting.clear()
        self.resume_writing()
        if self.running is not None:
            # The handler has no client; uvloop raises on a write to a closed connection.
            self.running.has_started = self.running.is_over = True
            self.running.task.cancel()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    # httptools

    def on_message_begin(self) -> None:
        self.is_mid_request = True
        self.active_since = self._loop.time()
        self._target = b""
        self._headers = {}
        self._repeated = set()
        self._head_bytes = 0
        self._is_in_head = True
        self._is_past_chunks = False
        self._parts = 0
        self._body = b""

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._count(len(part))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + HEADER_COST)
        if not self._is_in_head:
            return  # a trailer: a proxy that checked the head did not see it
        name = name.lower()
        if name in self._headers:
            self._repeated.add(name)
            value = self._headers[name] + b", " + value
        self._headers[name] = value.strip(b" \t")

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._parser.should_upgrade():
            raise InvalidRequest("protocol upgrades are not supported")
        length = self._headers.get(b"content-length")
        if length is not None and int(length) > MAX_BODY_BYTES:
            raise _oversized_body_error()
        if b"expect" in self._headers and not self._waiting and self.running is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_chunk_header(self) -> None:
        self._is_past_chunks = True  # until data of the chunk arrives: the last chunk has none

    def on_body(self, part: bytes) -> None:
        self._is_past_chunks = False
        self._parts += 1
        if not self._body:
            self._body = part
        else:
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += part
        if len(self._body) > MAX_BODY_BYTES or self._parts > MAX_BODY_PARTS:
            raise _oversized_body_error()

    def on_message_complete(self) -> None:
        parser = self._parser
        self.is_mid_request = False
        target, _, query = self._target.partition(b"?")
        try:
            path = unquote(target.decode("ascii"), errors="strict")
        except UnicodeDecodeError as exc:
            raise InvalidRequest("invalid request target") from exc
        method = parser.get_method().decode("ascii")
        # The body is complete: its length is no longer needed.
        length, body = self._headers.pop(b"content-length", None), bytes(self._body)
        request = HttpRequest(method, path, query, self._headers, body, self._peer)
        first, self._first, self._body = self._first, b"", b""  # frees memory while the connection is idle
        keeps_alive = parser.should_keep_alive() and not self._owner.is_closing
        if self._repeated:
            request.repeated = frozenset(self._repeated)
        elif keeps_alive and length == b"%d" % len(body):
            self._remember(request, first)
        has_body = method != "HEAD"
        responder = HttpResponder(self.transport, self._drained, keeps_alive=keeps_alive, has_body=has_body)
        if self.running is None:
            self._start(request, responder)
            return
        # All waiting bodies together are at most as large as one may be.
        waiting = [len(one.body) for one, _ in self._waiting]
        if len(waiting) >= MAX_PIPELINED or sum(waiting) + len(body) > MAX_BODY_BYTES:
            raise InvalidRequest(
                f"more than {MAX_PIPELINED} requests are pipelined on one connection",
                hint="wait for responses, or open another connection",
            )
        self._waiting.append((request, responder))

    def _remember(self, request: HttpRequest, first: bytes) -> None:
        """Remember the head of a plain request that arrived alone and in one piece, `first`.

        Invariant: the value under a head's bytes is what the parser returned for exactly these bytes.
        """
        head, mark, rest = first.partition(b"\r\n\r\n")
        is_plain = request.method == "POST" and b"expect" not in request.headers
        is_alone = bool(mark) and rest == request.body
        if not (is_plain and is_alone) or len(head) > MAX_KNOWN_HEAD_BYTES:
            return
        shape = parse_head_shape(head + mark)
        if shape is not None:
            known = KnownHead(shape, request.method, request.path, request.query, request.headers)
            self._known.insert(0, known)
            del self._known[MAX_KNOWN_HEADS:]

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(f"the head is larger than {MAX_HEAD_BYTES} bytes")

    # Responding

    def _start(self, request: HttpRequest, responder: HttpResponder) -> None:
        self.running = responder
        responder.task = self._loop.create_task(self._run_handler(request, responder))

    async def _run_handler(self, request: HttpRequest, responder: HttpResponder) -> None:
        try:
            await self._owner.handler(request, responder)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Exception:  # the request ends here, whatever the error
            _log.exception("a request failed with an unexpected error")
            self._abandon(responder)
        finally:
            self._finish(responder)

    def _finish(self, responder: HttpResponder) -> None:
        self.running = None
        self.active_since = self._loop.time()
        if not responder.is_over:
            self._abandon(responder)
        elif not responder.keeps_alive or self._owner.is_closing:
            self.transport.close()
        elif self._waiting:
            self._start(*self._waiting.pop(0))

    def _abandon(self, responder: HttpResponder) -> None:
        """The handler sent no complete response: send an error if nothing was sent, and close."""
        if not responder.has_started:
            responder.send(500, encode_error(ToolgateError("internal error")))
        self.transport.close()

    def _refuse(self, error: ToolgateError) -> None:
        """End a connection after invalid input; with a response, unless another one is being sent."""
        if self.running is None:
            self.transport.write(encode_http_response(error.wire.http, encode_error(error), close=True))
            if isinstance(error, BodyTooLarge) and self._parts <= MAX_BODY_PARTS:
                # The client closes after it has read the response; the sweep closes the others.
                self._discarding, self._body = MAX_DISCARDED_BYTES, b""
                self.transport.write_eof()
                return
        self.transport.close()


def _invalid_http_error() -> InvalidRequest:
    return InvalidRequest("the request is not valid HTTP/1.1")


def _oversized_body_error() -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {MAX_BODY_BYTES} bytes, or in more than {MAX_BODY_PARTS} pieces"
    )


@dataclass(eq=False)
class HttpServer:
    """One listening socket with one handler behind it."""

    handler: HttpHandler
    _: KW_ONLY
    request_s: float = REQUEST_S
    keep_alive_s: float = KEEP_ALIVE_S
    max_connections: int = MAX_CONNECTIONS
    is_closing: bool = False
    _connections: set[HttpServerConnection] = field(default_factory=set)
    _stuck: dict[HttpServerConnection, float] = field(default_factory=dict)
    _all_disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._connections)

    def add_connection(self, connection: HttpServerConnection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self.max_connections

    def remove_connection(self, connection: HttpServerConnection) -> None:
        self._connections.discard(connection)
        self._stuck.pop(connection, None)
        if not self._connections:
            self._all_disconnected.set()

    async def serve(
        self, listener: socket.socket, stopping: Callable[[], Awaitable[object]], *, drain_s: float
    ) -> None:
        """Serve until `stopping` returns; then let open requests finish, for at most `drain_s`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HttpServerConnection(self, loop), sock=listener, backlog=BACKLOG
        )
        sweeping = loop.create_task(self._sweep())
        try:
            await stopping()
        finally:
            sweeping.cancel()
            server.close()
            await self._drain(drain_s)

    async def _drain(self, drain_s: float) -> None:
        self.is_closing = True
        for connection in tuple(self._connections):
            if connection.running is None:
                connection.transport.close()
        try:
            async with asyncio.timeout(drain_s):
                await self._wait_disconnected()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.transport.abort()
            await self._wait_disconnected()

    async def _wait_disconnected(self) -> None:
        while self._connections:
            self._all_disconnected.clear()
            await self._all_disconnected.wait()

    async def _sweep(self) -> None:
        """End overdue connections periodically, which costs requests nothing."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(min(SWEEP_S, self.request_s / 2))
            now = clock()
            for number, connection in enumerate(tuple(self._connections), start=1):
                if connection in self._connections and self._is_overdue(connection, now):
                    connection.transport.abort()
                if number % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _is_overdue(self, connection: HttpServerConnection, now: float) -> bool:
        if connection.transport.get_write_buffer_size():
            return now - self._stuck.setdefault(connection, now) > self.request_s
        self._stuck.pop(connection, None)
        if connection.running is not None:
            return False
        limit_s = self.request_s if connection.is_mid_request else self.keep_alive_s
        return now - connection.active_since > limit_s
