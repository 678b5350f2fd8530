"""What an HTTP handler gets, and how it responds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec

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
