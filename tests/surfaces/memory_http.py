"""HTTP handlers in memory: requests as the listener makes them, and responders that keep what was sent."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import httpx2

from toolgate.surfaces.http.messages import Headers, HttpHandler, HttpRequest


class _FirstEventSent(Exception):
    """The client has seen the first event of a stream, and leaves."""


class WholeResponse:
    """Collects a response. Of an event stream it takes the first event: its end may never come."""

    task: "asyncio.Task[None]"

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self._added: list[tuple[bytes, bytes]] = []

    def add_headers(self, headers: Headers) -> None:
        self._added += headers

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        # JSON unless `headers` say otherwise, as the listener sends it.
        self.start(status, [(b"content-type", b"application/json"), *headers])
        self.body = body

    def send_message(self, message: bytes) -> bool:
        raise AssertionError("REST sends no messages ahead of its response")

    def start(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, list({**dict(headers), **dict(self._added)}.items())

    async def write(self, chunk: bytes) -> None:
        self.body += chunk
        if (b"content-type", b"text/event-stream") in self.headers:
            raise _FirstEventSent

    def end(self) -> None:
        """The body is complete."""


class HandlerTransport(httpx2.AsyncBaseTransport):
    """Hands the requests of an HTTP client to a handler, without a socket."""

    def __init__(self, handler: HttpHandler) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _, _, query = request.url.raw_path.partition(b"?")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        received = make_request(request.method, request.url.path, query, headers, await request.aread())
        response = WholeResponse()
        with suppress(_FirstEventSent):
            await self._handler(received, response)
        body = b"" if request.method == "HEAD" else response.body
        return httpx2.Response(response.status, headers=response.headers, content=body)


def make_request(
    method: str, path: str, query: bytes, headers: Headers | Mapping[bytes, bytes], body: bytes = b""
) -> HttpRequest:
    """A request as the listener makes it: repeated headers are joined, and there is no content length."""
    joined: dict[bytes, bytes] = {}
    repeated = set()
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if name in joined:
            repeated.add(name)
        if name != b"content-length":
            joined[name] = joined[name] + b", " + value if name in joined else value
    return HttpRequest(method, path, query, joined, body=body, peer="127.0.0.1", repeated=frozenset(repeated))
