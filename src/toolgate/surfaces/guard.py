"""The outermost layer of every HTTP route: Host and Origin, so that no web page can reach a local gateway.

It runs before any route is looked at, so a new route cannot forget it (DNS rebinding, SCO-18).
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from toolgate.errors import ForeignOrigin

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Passes on requests that name this gateway as their host and come from no foreign page."""

    def __init__(self, app: AsgiApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._good_hosts: set[bytes] = set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        problem = self._problem(scope["headers"])
        if problem is None:
            await self._app(scope, receive, send)
            return
        error = ForeignOrigin(problem)
        body = msgspec.json.encode({"error": {"code": error.code, "message": str(error), "hint": error.hint}})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": error.wire.http, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _problem(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        host: bytes | None = None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin" and not self._is_own(_origin_host(value)):
                return "the request comes from a foreign origin"
        if host is None:
            return "the request names no host"
        if host in self._good_hosts:
            return None
        if not self._is_own(_host_name(host)):
            return "the request names a host that is not this gateway"
        if len(self._good_hosts) < 64:
            self._good_hosts.add(host)
        return None

    def _is_own(self, name: str | None) -> bool:
        return name is not None and name in self._hosts


def _host_name(value: bytes) -> str | None:
    """The host of a Host header, without port and brackets."""
    return _host_of("//" + value.decode("latin-1"))


def _origin_host(value: bytes) -> str | None:
    text = value.decode("latin-1")
    return _host_of(text) if text.startswith(("http://", "https://")) else None


def _host_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        return None
    if parts.path not in {"", "/"} or parts.username is not None:
        return None
    return parts.hostname
