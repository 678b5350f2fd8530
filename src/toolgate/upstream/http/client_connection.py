"""One kept-alive HTTP/1.1 connection, on asyncio and httptools: one request at a time.

It writes a request at most once: if the connection dies after that, the outcome is unknown, and only the
caller can judge it. Everything that a server sends is bounded before it is kept. Redirects are responses like
any other, and content encodings are rejected.
"""

import asyncio
import math
import re
import select
import socket
import time
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import httptools

from toolgate.model.http import HeadShape, parse_head_shape
from toolgate.upstream.connection.contract import DEADLINE_CHECK_S, MAX_MESSAGE_BYTES
from toolgate.upstream.http.sse import StreamRefused

if TYPE_CHECKING:  # it uses this module
    from toolgate.upstream.http.connection_pool import HttpPool

_EVENT_STREAM: Final = b"text/event-stream"
_DRAIN_S: Final = 1.0
"""How long a stream may continue after its response before the connection is dropped."""
_MAX_KNOWN_HEAD_BYTES: Final = 2_048  # a choice: each connection keeps one; a longer head is parsed each time
# A chunk of a stream over both sizes is parsed in parts, because each event takes time.
# A choice: a page of short lines, far below the 64 KiB or more of one read.
_LARGE_CHUNK_BYTES: Final = 4 * 1024
_LARGE_CHUNK_LINES: Final = 64
_KEEP_ALIVE: Final = re.compile(rb"(?:^|[\s,])timeout=(\d{1,6})", re.IGNORECASE)
_MARGIN_S: Final = 1.0
"""Nothing is sent on an idle connection this long before the server's announced keep-alive ends."""
NOISY_S: Final = 0.0002
"""A stream that keeps the loop busy for longer yields to others before it is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of one pool."""

    connect_timeout_s: float = 5.0
    max_failed_connects: int = 5
    cooldown_s: float = 5.0
    """After `max_failed_connects` in a row, one connect per cooldown is tried; the others fail at once."""
    idle_s: float = 30.0
    fresh_s: float = 1.0
    """A connection that was idle longer is polled first: the server may have closed it."""
    distrust_s: float = 60.0
    """How long a server counts as closing kept connections; doubles each time, up to an hour."""
    max_connections: int = 128
    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = MAX_MESSAGE_BYTES
    max_error_bytes: int = 64 * 1024
    """Of the body of an error status; the rest is not read."""
    max_pieces: int = 4_096
    """Chunks of a body in one read. A server that sends single bytes would keep the loop busy."""
    yields_streams: bool = True
    """Whether streams that keep the loop busy yield to others. If not, their reader pauses them."""


DEFAULT_LIMITS: Final = HttpLimits()


class HttpResponse(NamedTuple):
    """A response; header names are in lower case. The body of a stream goes to its sink instead."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes | bytearray

    @property
    def is_stream(self) -> bool:
        return _is_stream(self.status, self.headers)


class HttpFailure(Exception):
    """No usable response."""


class ConnectFailed(HttpFailure):
    """No connection, so nothing was sent."""


class ExchangeFailed(HttpFailure):
    """The request was written without a usable response: whether the server acted on it is unknown."""


class ConnectionStale(ExchangeFailed):
    """A kept connection ended before any part of a response: most likely the server had closed it already."""


class ExchangeTimedOut(HttpFailure):
    """The deadline passed. The connection is gone, which is how HTTP tells the server to stop."""


class StreamSink(Protocol):
    """Takes an event stream as it arrives, if the server responds with one."""

    def begin(self) -> None:
        """The stream has opened."""

    def feed(self, chunk: bytes) -> bool:
        """True once the response has arrived. Raises StreamRefused to end the stream."""

    def deadline(self, deadline: float) -> float:
        """The current deadline: later than `deadline` while a request to a client is open."""


@dataclass(slots=True, eq=False, repr=False)
class HttpClientConnection(asyncio.Protocol):
    """One connection with one request at a time. Both asyncio's protocol and httptools' callbacks."""

    _pool: "HttpPool"
    _limits: HttpLimits
    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport = field(init=False)
    _parser: httptools.HttpResponseParser = field(init=False)
    _: KW_ONLY
    _status: int = 0
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _body: bytes | bytearray = b""
    _head_bytes: int = 0
    _is_framed: bool = True
    _waiter: asyncio.Future[HttpResponse] | None = None
    _sink: StreamSink | None = None
    _drain: asyncio.TimerHandle | None = None
    _timer: asyncio.TimerHandle | None = None
    _armed_s: float = math.inf
    deadline: float = math.inf
    """Of the current request; none if it only waits for notifications."""
    has_request: bool = False
    _awaits_head: bool = False
    _first: bytes = b""
    """The first bytes of the current response."""
    _known: tuple[HeadShape, dict[bytes, bytes]] | None = None
    """The head of the newest plain response: the next one usually equals it and is not parsed again."""
    idle_since: float = -1.0
    """Below 0: the connection is new."""
    idled_s: float = 0.0
    """How long it was idle before its current request."""
    _kept_s: float = math.inf
    """The server's announced keep-alive time, less a margin."""
    _max_body_bytes: int = 0
    _pending_bytes: int = 0
    _pieces: int = 0
    _held: bytes = b""
    """The unparsed bytes of a stream."""
    _missing: int = 0
    """Bytes that are missing of a body whose head was known."""
    _keeps_alive: bool = False
    _is_paused: bool = False

    def __post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    def exchange(
        self, request: bytes, sink: StreamSink | None, deadline: float | None
    ) -> asyncio.Future[HttpResponse]:
        """Write a whole request. The future holds an HttpResponse, ExchangeFailed or ExchangeTimedOut."""
        self.has_request = True
        self.deadline = math.inf if deadline is None else deadline
        if self.deadline < self._armed_s:
            self._arm()
        self._sink = sink
        self._pending_bytes = 0
        self._status = 0
        self._first = b""
        self._awaits_head = True
        waiter = self._waiter = self._loop.create_future()
        self._transport.write(request)
        return waiter

    def _arm(self) -> None:
        """One timer serves many exchanges: it moves forward when it fires and is not set for each."""
        if self._timer is not None:
            self._timer.cancel()
        self._armed_s = self.deadline
        self._timer = self._loop.call_at(self._armed_s, self._on_timer)

    def _on_timer(self) -> None:
        self._armed_s, self._timer = math.inf, None
        if self._waiter is None:
            return
        now = self._loop.time()
        if self.deadline <= now and self._sink is not None:
            self.deadline = min(self._sink.deadline(self.deadline), now + DEADLINE_CHECK_S)
        if self.deadline <= now:
            self.fail(ExchangeTimedOut("no response within the deadline"))
        elif self.deadline < math.inf:
            self._arm()

    def abandon(self, waiter: asyncio.Future[HttpResponse]) -> None:
        """Stop waiting for `waiter`. The connection may serve another request by now; that one continues."""
        if waiter is self._waiter:
            self.drop()

    def fail(self, error: Exception) -> None:
        """End the current exchange, and with it the connection."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        self.drop()

    def drop(self) -> None:
        self._keeps_alive = False
        self._waiter = None
        self._sink = None
        self._transport.abort()

    def pause(self) -> None:
        """Stop reading the current response until `resume`. Only if streams do not yield by themselves."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        self._is_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def is_usable(self, now: float) -> bool:
        """Whether a request may be written to it now."""
        idle_s = now - self.idle_since
        if self._transport.is_closing() or idle_s >= self._kept_s:
            return False
        if idle_s < self._limits.fresh_s:
            return True
        # The server may have closed it, or sent unrequested bytes, before the event loop has noticed.
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Streams may be silent for hours; this detects a peer that vanished without closing.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if not self.has_request:
            self.drop()
            return
        if self._awaits_head:
            self._awaits_head = False
            if self._receive_known(data):
                return
            self._first = data
        elif self._missing:
            self._receive_rest(data)
            return
        if self._sink is not None and self._status >= 200 and self._limits.yields_streams:
            self._receive_stream(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        self._pieces = 0
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.fail(ExchangeFailed("the server's response is not HTTP/1.1"))
        if self._pending_bytes > self._limits.max_head_bytes:
            self.fail(ExchangeFailed("the server's response head is too long"))

    def _receive_stream(self, data: bytes) -> None:
        """Parse a part of a stream's chunk. The rest waits, and so does the next chunk."""
        is_large = len(data) >= _LARGE_CHUNK_BYTES and data.count(b"\n") >= _LARGE_CHUNK_LINES
        if is_large:
            data, self._held = data[:_LARGE_CHUNK_BYTES], data[_LARGE_CHUNK_BYTES:]
        began_s = time.perf_counter()
        self._parse(data)
        took_s = time.perf_counter() - began_s
        if (is_large or took_s >= NOISY_S) and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_at(self._pool.resume_stream_at_s(took_s), self._resume_stream)

    def _resume_stream(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self.data_received(held)
        if not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _receive_known(self, data: bytes) -> bool:
        """Take the response that begins with `data`, if its head is known."""
        if self._known is None or self._waiter is None:
            return False
        shape, headers = self._known
        found = shape.locate(data)
        if found is None:
            return False
        begin, length = found
        missing = length - len(data) + begin
        if missing < 0 or length > self._limits.max_body_bytes:
            return False
        self._status, self._headers, self._body = 200, headers, data[begin:]
        self._is_framed = self._keeps_alive = True
        self._sink = None
        self._missing = missing
        if not missing:
            self.on_message_complete()
        return True

    def _receive_rest(self, data: bytes) -> None:
        """Continue a response whose head was known: the parser has nothing left to find in it."""
        part = data[: self._missing]
        self._append(part)
        self._missing -= len(part)
        if not self._missing:
            self.on_message_complete()
            if len(part) < len(data):
                self.drop()  # a second response would be taken for the next request's

    def _remember_head(self) -> None:
        """Remember the head of a plain, whole response on a connection that stays open."""
        head, mark, rest = self._first.partition(b"\r\n\r\n")
        is_plain = self._status == 200 and self._sink is None and self._keeps_alive
        is_framed = self._headers.get(b"content-length") == b"%d" % len(self._body)
        is_whole = bool(mark) and len(head) <= _MAX_KNOWN_HEAD_BYTES and self._body.startswith(rest)
        shape = parse_head_shape(head + mark) if is_plain and is_framed and is_whole else None
        self._known = None if shape is None else (shape, self._headers)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._status >= 200 and not self._is_framed:
            self._resolve()
        is_stale = self._awaits_head and self.idle_since >= 0
        if is_stale:
            self._pool.on_closed_idle(self.idled_s)
        elif self._keeps_alive and not self.has_request:
            self._pool.on_closed_idle(self._loop.time() - self.idle_since)
        self.fail((ConnectionStale if is_stale else ExchangeFailed)("the server closed the connection"))
        if self._drain is not None:
            self._drain.cancel()
        if self._timer is not None:
            self._timer.cancel()
        del self._parser  # a reference cycle would keep responses until the next garbage collection
        self._pool.forget(self)

    # httptools

    def on_message_begin(self) -> None:
        if not self.has_request:
            self.drop()  # a second response would be taken for the next request's
        self._status = 0
        self._headers = {}
        self._body = b""
        self._head_bytes = 0
        self._is_framed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self._headers[name.lower()] = value.strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._status = status
        self._keeps_alive = self._parser.should_keep_alive()
        headers = self._headers
        if b"keep-alive" in headers:
            timeout = _KEEP_ALIVE.search(headers[b"keep-alive"])
            self._kept_s = math.inf if timeout is None else max(0.0, int(timeout[1]) - _MARGIN_S)
        if self._head_bytes > self._limits.max_head_bytes:
            self.fail(ExchangeFailed("the server's response head is too long"))
        elif headers.get(b"content-encoding", b"identity") != b"identity":
            self.fail(ExchangeFailed("the server's response is compressed, which was not requested"))
        elif status >= 400:
            self._max_body_bytes = self._limits.max_error_bytes
        else:
            self._max_body_bytes = self._limits.max_body_bytes
            self._check_body(int(headers.get(b"content-length", b"0")))
        has_length = b"content-length" in headers or b"transfer-encoding" in headers
        self._is_framed = has_length or status in (204, 304)
        if self._sink is not None and _is_stream(status, headers):
            self._sink.begin()
        else:
            self._sink = None

    def on_body(self, chunk: bytes) -> None:
        self._pending_bytes = 0
        if self._waiter is None:
            return
        self._pieces += 1
        if self._pieces > self._limits.max_pieces:
            self.fail(ExchangeFailed("the server's response comes in too many pieces"))
            return
        if self._sink is not None:
            self._feed_sink(self._sink, chunk)
            return
        self._append(chunk)
        self._check_body(len(self._body))

    def _append(self, part: bytes) -> None:
        if not self._body:
            self._body = part
        else:
            # One array, not a list of parts: tiny parts would cost forty times their size.
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += part

    def on_message_complete(self) -> None:
        if self._status < 200:
            return
        if self._first:
            self._remember_head()
        self._resolve()
        self._first = self._body = b""  # the connection may be idle for a long time
        self.has_request = False
        if self._is_paused:
            self.resume()
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        # If the server responds before it has read the whole request, the rest of it is still unsent.
        if self._keeps_alive and not self._held and self._transport.get_write_buffer_size() == 0:
            self._pool.give_back(self)
        else:
            self.drop()

    def _feed_sink(self, sink: StreamSink, chunk: bytes) -> None:
        try:
            has_response = sink.feed(chunk)
        except StreamRefused as exc:
            self.fail(ExchangeFailed(str(exc)))
            return
        if has_response:
            self._resolve()
            self._drain = self._loop.call_later(_DRAIN_S, self.drop)

    def _check_body(self, size: int) -> None:
        if size <= self._max_body_bytes:
            return
        if self._status >= 400:
            self._body = self._body[: self._max_body_bytes]
            self._resolve()
            self.drop()
        else:
            self.fail(ExchangeFailed(f"the server's response is longer than {self._max_body_bytes} bytes"))

    def _resolve(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(HttpResponse(self._status, self._headers, self._body))


def _is_stream(status: int, headers: dict[bytes, bytes]) -> bool:
    return status == 200 and headers.get(b"content-type", b"").lower().startswith(_EVENT_STREAM)
