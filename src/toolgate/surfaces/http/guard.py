"""In front of every door: Host and Origin, so that no web page can reach a local gateway.

It runs before any route is looked at, so a new route cannot forget it (DNS rebinding).
"""

from collections.abc import Awaitable, Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from toolgate.errors import ForeignOrigin
from toolgate.surfaces.http.messages import Door, Request, Responder

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_KNOWN: Final = 64


class Guard:
    """Passes on requests that name this gateway as their host and come from no foreign page."""

    def __init__(self, door: Door, hosts: Iterable[str]) -> None:
        self._door = door
        self._hosts = frozenset(host.lower() for host in hosts)
        self._known: set[bytes] = set()

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None]:
        headers = request.headers
        if b"origin" not in headers and headers.get(b"host") in self._known:
            return self._door(request, responder)
        problem = self._problem(request)
        return self._door(request, responder) if problem is None else _turn_away(responder, problem)

    def _problem(self, request: Request) -> str | None:
        host = request.headers.get(b"host")
        origin = request.headers.get(b"origin")
        if host is None or self._is_foreign("//" + host.decode("latin-1")):
            return "the request names a host that is not this gateway"
        if origin is not None and self._is_foreign(origin.decode("latin-1"), schemes=("http", "https")):
            return "the request comes from a foreign origin"
        if len(self._known) < MAX_KNOWN:
            self._known.add(host)
        return None

    def _is_foreign(self, url: str, schemes: tuple[str, ...] = ("",)) -> bool:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises on a port that is none
        except ValueError:
            return True
        is_bare = (
            parts.path in {"", "/"} and not parts.query and not parts.fragment and parts.username is None
        )
        return not is_bare or parts.scheme not in schemes or parts.hostname not in self._hosts


async def _turn_away(responder: Responder, problem: str) -> None:
    error = ForeignOrigin(problem)
    responder.send(error.wire.http, msgspec.json.encode({"error": error.detail}))
