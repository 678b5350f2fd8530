"""An ASGI application behind our listener, for the surfaces where speed does not matter."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from toolgate.surfaces.http.messages import HttpRequest, Responder

IS_FROM_OTHER_ORIGIN: Final = "toolgate.is_from_other_origin"
"""In the scope of a request: as in `HttpRequest`."""

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class AsgiDoor:
    """Serves each request by one call of the application."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, request: HttpRequest, responder: Responder) -> None:
        await self._app(_scope(request), _receiver(request.body), _Sender(responder).send)


def _scope(request: HttpRequest) -> AsgiScope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query,
        "root_path": "",
        "client": (request.peer, 0),
        "headers": list(request.headers.items()),
        IS_FROM_OTHER_ORIGIN: request.is_from_other_origin,
    }


def _receiver(body: bytes) -> Receive:
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if pending:
            return pending.pop()
        # A client that goes away cancels the whole call, so there is never more to tell.
        await asyncio.Event().wait()
        raise AssertionError

    return receive


class _Sender:
    """Collects a whole answer into one write; streams one that comes in parts."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_streaming = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(n, v) for n, v in message["headers"] if n.lower() != b"content-length"]
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not more and not self._is_streaming:
            self._responder.send(self._status, body, self._headers)
            return
        if not self._is_streaming:
            self._is_streaming = True
            self._responder.start(self._status, self._headers)
        await self._responder.write(body)
        if not more:
            self._responder.end()
