"""Requests and responses of HTTP handlers: a response is whole, a stream, or server-sent events.

Also the headers of errors and the spans that all handlers share.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from toolgate.errors import Forbidden, MethodNotAllowed, ToolgateError, Unauthenticated
from toolgate.gateway.auth.issuer import ResourceMetadata
from toolgate.telemetry.spans import Attributes, Tracer

Headers = Iterable[tuple[bytes, bytes]]


class HttpRequest(msgspec.Struct):
    """One complete request. Header names are in lower case; repeated headers are joined by commas.

    Requests with equal heads share their `headers`: never change them. They leave out `Content-Length`, so
    that heads that differ only in it count as equal.
    """

    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes = b""
    peer: str = ""
    """The peer's address of the connection, independent of headers."""
    repeated: frozenset[bytes] = frozenset()
    """Names of repeated headers."""
    is_from_elsewhere: bool = False
    """Whether a page from another machine sent it: trust in local callers does not apply."""
    is_from_other_origin: bool = False
    """Whether a page of another origin sent it, on this machine or not: the REST API requires a key."""

    def header(self, name: str) -> str | None:
        """The value of a header, by its name in lower case. None if it is absent."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def base_url(self) -> str:
        """The URL of this gateway, as the client called it."""
        return f"http://{self.header('host') or 'localhost'}"


class Responder(Protocol):
    """Responds to one request: by `send`, or by `start`, any number of `write` and `end`.

    If the client disconnects, the request's task is cancelled, so handlers need not check for it.
    """

    task: "asyncio.Task[None]"
    """The task that serves this request."""

    def add_headers(self, headers: Headers) -> None:
        """Send these headers with any response. Call it before the response."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Send a complete response, JSON unless `headers` have another type."""

    def send_message(self, message: bytes) -> bool:
        """Send a JSON message ahead of the response, which becomes an event stream; `send` ends it.

        Returns at once. Returns False, and sends nothing, if the client has too much unread.
        """

    def start(self, status: int, headers: Headers) -> None:
        """Start a response of unknown length."""

    async def write(self, chunk: bytes) -> None:
        """Send a part of the response. Waits while the client is slow to read."""

    def end(self) -> None:
        """End the response."""


HttpHandler = Callable[[HttpRequest, Responder], Awaitable[None]]


def encode_error(error: ToolgateError) -> bytes:
    """The body of an error response."""
    return msgspec.json.encode({"error": error.detail})


def error_headers(
    exc: ToolgateError, request: HttpRequest, metadata: ResourceMetadata, path: str = ""
) -> dict[str, str]:
    """The headers of an error: authentication, allowed methods, retry time. `path`: for the metadata."""
    headers = {}
    if isinstance(exc, Forbidden | Unauthenticated):
        parts = ['Bearer realm="toolgate"']
        if isinstance(exc, Forbidden):
            parts.append('error="insufficient_scope"')
        elif b"authorization" in request.headers:
            parts.append('error="invalid_token"')
        metadata_url = metadata.metadata_url(request.base_url, path)
        if metadata_url is not None:
            parts.append(f'resource_metadata="{metadata_url}"')
        headers["www-authenticate"] = ", ".join(parts)
    if isinstance(exc, MethodNotAllowed):
        headers["allow"] = ", ".join(exc.data["allowed"])
    if exc.wire.http in (429, 503):
        headers["retry-after"] = str(exc.retry_after_s or 1)
    return headers


@contextmanager
def trace_request(
    tracing: Tracer | None, carried: Mapping[str, str], *, verb: str, route: str, notes: Attributes
) -> Iterator[None]:
    """A span for the block, which serves a request. `carried`: the trace context from its headers."""
    if tracing is None:
        yield
        return
    fixed = {"http.request.method": verb, "http.route": route}
    with tracing.continued(carried), tracing.span(f"{verb} {route}", "server", {**fixed, **notes}) as span:
        try:
            yield
        except ToolgateError as exc:
            span.note("http.response.status_code", exc.wire.http)
            raise


EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
KEEPALIVE: Final = b": keep-alive\n\n"
KEEPALIVE_S: Final = 15.0
"""The pause between keep-alive comments: proxies close connections that are silent for a minute."""
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def encode_event(message: bytes, *, event_id: bytes = b"") -> bytes:
    """One JSON message as a server-sent event. A client resumes a stream from its last `event_id`."""
    if b"\n" in message or b"\r" in message:
        # In JSON, line ends occur only between tokens, where a space is equal. In SSE, they end a field.
        message = message.translate(_LINE_ENDS_TO_SPACES)
    if event_id:
        return b"id: %b\nevent: message\ndata: %b\n\n" % (event_id, message)
    return b"event: message\ndata: %b\n\n" % message


MAX_UNREAD_MESSAGE_BYTES: Final = 1024 * 1024
"""If a client leaves more unread, no more messages are sent ahead of its response."""

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_OK_JSON: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_LONG_BYTES: Final = 16 * 1024  # a body from this size on is not copied to join its head
_JSON: Final = b"content-type: application/json\r\n"
_BODILESS: Final = frozenset({202, 204, 304})


def encode_http_response(status: int, body: bytes, headers: Headers = (), *, close: bool = False) -> bytes:
    """A complete response. It is JSON unless `headers` have another type."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    is_typed = any(line[:13].lower() == b"content-type:" for line in lines)
    return b"%b%b%b%bcontent-length: %d\r\n\r\n%b" % (
        _status_line(status),
        b"" if is_typed or status in _BODILESS else _JSON,
        b"".join(lines),
        b"connection: close\r\n" if close else b"",
        len(body),
        body,
    )


@dataclass(slots=True, eq=False)
class HttpResponder:
    """Responds to one request. After the end it has no effect, so a late message never reaches the next."""

    _transport: asyncio.Transport
    _drained: asyncio.Event
    """The connection's event: set unless the client is slow to read."""
    _: KW_ONLY
    keeps_alive: bool
    has_body: bool
    has_started: bool = False
    is_over: bool = False
    task: "asyncio.Task[None]" = field(init=False)
    _added: Headers = ()
    _has_sent_messages: bool = False
    """Whether messages were sent ahead of the response, which then is the last event."""

    def add_headers(self, headers: Headers) -> None:
        self._added = (*self._added, *headers)

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        if self.has_started:
            if self._has_sent_messages and not self.is_over:
                self._put(encode_event(body))
                self.end()
            return
        self.has_started = self.is_over = True
        if self._added:
            headers = (*headers, *self._added)
        if status == 200 and not headers and self.keeps_alive and self.has_body:
            if len(body) < _LONG_BYTES:
                self._transport.write(_OK_JSON % len(body) + body)
            else:
                self._transport.writelines((_OK_JSON % len(body), body))
            return
        response = encode_http_response(status, body, headers, close=not self.keeps_alive)
        self._transport.write(response if self.has_body else response[: len(response) - len(body)])

    def send_message(self, message: bytes) -> bool:
        if self.is_over or self._transport.get_write_buffer_size() > MAX_UNREAD_MESSAGE_BYTES:
            return False
        if not self.has_started:
            self._has_sent_messages = True
            self.start(200, EVENT_HEADERS)
        self._put(encode_event(message))
        return True

    def start(self, status: int, headers: Headers) -> None:
        if self.has_started:
            return
        self.has_started = True
        lines = b"".join(b"%b: %b\r\n" % header for header in (*headers, *self._added))
        close = b"" if self.keeps_alive else b"connection: close\r\n"
        head = b"%b%b%btransfer-encoding: chunked\r\n\r\n" % (_status_line(status), lines, close)
        self._transport.write(head)

    async def write(self, chunk: bytes) -> None:
        if chunk and self.has_body and not self.is_over:
            self._put(chunk)
            await self._drained.wait()

    def _put(self, chunk: bytes) -> None:
        if self.has_body:
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def end(self) -> None:
        if self.has_started and not self.is_over:
            self.is_over = True
            self._transport.write(b"0\r\n\r\n" if self.has_body else b"")


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
