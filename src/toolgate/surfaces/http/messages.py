"""What an HTTP handler gets, how it responds, and what every one has around it: headers of errors, spans."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec

from toolgate.errors import Forbidden, ToolgateError, Unauthenticated
from toolgate.telemetry.spans import Attributes, Tracer

Headers = Iterable[tuple[bytes, bytes]]


class HttpRequest(msgspec.Struct):
    """One whole request. Header names are in lower case; repeated headers are joined by commas.

    Requests with equal heads share their `headers`: do not change them. `Content-Length` is not among
    them, as heads that differ in nothing else count as equal.
    """

    method: str
    path: str
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes = b""
    peer: str = ""
    """The address the connection comes from, whatever the headers say."""
    repeated: frozenset[bytes] = frozenset()
    """Names of the headers that came more than once."""
    is_from_elsewhere: bool = False
    """Sent by a page that is not of this machine: the trust in local callers is not for it."""
    is_from_other_origin: bool = False
    """Sent by a page of another origin, on this machine or not: it administers nothing without a key."""

    def header(self, name: str) -> str | None:
        """The value of a header, by its name in lower case. None: the request does not have it."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


class Responder(Protocol):
    """How one request is responded to: by `send`, or by `start`, any number of `write` and `end`.

    When the client disconnects, the task of the request is cancelled, so no handler has to watch for that.
    """

    task: "asyncio.Task[None]"
    """The task that serves this request."""

    def add_headers(self, headers: Headers) -> None:
        """Send these headers with the response, whatever it is. Call it before the response."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Send a whole response, JSON unless `headers` have another type."""

    def send_message(self, message: bytes) -> bool:
        """Send a JSON message ahead of the response, which becomes an event stream; `send` ends it.

        Returns at once. False, and nothing is sent, if the client has too much unread.
        """

    def start(self, status: int, headers: Headers) -> None:
        """Start a response of unknown length."""

    async def write(self, chunk: bytes) -> None:
        """Send a part of it. Waits while the client is slow to read."""

    def end(self) -> None:
        """End it."""


HttpHandler = Callable[[HttpRequest, Responder], Awaitable[None]]


def encode_error(error: ToolgateError) -> bytes:
    """The body of an answer that is an error."""
    return msgspec.json.encode({"error": error.detail})


def error_headers(
    exc: ToolgateError, *, has_credential: bool = False, metadata_url: str | None = None
) -> dict[str, str]:
    """The headers by which an answer says what to bring, or when to come back."""
    headers = {}
    if isinstance(exc, Forbidden | Unauthenticated):
        parts = ['Bearer realm="toolgate"']
        if isinstance(exc, Forbidden):
            parts.append('error="insufficient_scope"')
        elif has_credential:
            parts.append('error="invalid_token"')
        if metadata_url is not None:
            parts.append(f'resource_metadata="{metadata_url}"')
        headers["www-authenticate"] = ", ".join(parts)
    if exc.wire.http in (429, 503):
        headers["retry-after"] = str(exc.retry_after_s or 1)
    return headers


@contextmanager
def trace_request(
    tracing: Tracer | None, carried: Mapping[str, str], *, verb: str, route: str, notes: Attributes
) -> Iterator[None]:
    """The block answers a request. `route` is the pattern of its path, `carried` what its headers say."""
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
