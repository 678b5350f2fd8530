"""In front of every door: Host and Origin, so that no web page can reach a local gateway.

It runs before any route is looked at, so a new route cannot forget it (DNS rebinding).
"""

from collections.abc import Awaitable, Iterable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from toolgate.errors import ForeignOrigin
from toolgate.surfaces.http.cors import Origins, is_preflight, preflight_headers
from toolgate.surfaces.http.messages import Door, Headers, Request, Responder

MAX_KNOWN: Final = 64
MAX_SHOWN: Final = 200
"""Characters of an origin in the message that refuses it."""


class Guard:
    """Passes on requests that name this gateway as their host and come from no foreign page."""

    def __init__(self, door: Door, hosts: Iterable[str], origins: Iterable[str] = ()) -> None:
        """`origins`: of other pages that may call it, as browsers name them."""
        self._door = door
        self._origins = Origins(origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._known: set[bytes] = set()

    def __call__(self, request: Request, responder: Responder) -> Awaitable[None]:
        headers = request.headers
        if b"origin" not in headers and headers.get(b"host") in self._known:
            return self._door(request, responder)
        problem = self._problem(request)
        if problem is not None:
            return _turn_away(responder, problem)
        origin = headers.get(b"origin", b"")
        if origin in self._origins:
            return self._serve_page(request, responder, origin)
        return self._door(request, responder)

    def _serve_page(self, request: Request, responder: Responder, origin: bytes) -> Awaitable[None]:
        """Answer a page of another origin that is allowed. Its preflights concern no endpoint."""
        responder.add_headers(self._origins.response_headers(origin))
        if is_preflight(request):
            return _allow(responder, preflight_headers(request))
        request.is_from_elsewhere = not self._origins.is_local(origin)
        # The console's own origin may be listed, too.
        request.is_from_other_origin = origin.partition(b"://")[2] != request.headers.get(b"host")
        return self._door(request, responder)

    def _problem(self, request: Request) -> ForeignOrigin | None:
        host = request.headers.get(b"host")
        origin = request.headers.get(b"origin")
        if host is None or self._is_foreign("//" + host.decode("latin-1")):
            return ForeignOrigin("the request names a host that is not this gateway")
        if origin is not None and not self._may_come_from(origin, request):
            shown = ascii(origin.decode("latin-1")[:MAX_SHOWN])[1:-1]
            return ForeignOrigin(
                f"the request comes from a page of the origin `{shown}`, which is not allowed",
                hint=f"to let its pages call this gateway, add `{shown}` to `allowed_origins`",
            )
        if len(self._known) < MAX_KNOWN:
            self._known.add(host)
        return None

    def _may_come_from(self, origin: bytes, request: Request) -> bool:
        """Pages of this host may call, as before; what needs a preflight is not of the same origin."""
        if origin in self._origins:
            return True
        is_foreign = self._is_foreign(origin.decode("latin-1"), schemes=("http", "https"))
        return not is_foreign and not is_preflight(request)

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


async def _allow(responder: Responder, headers: Headers) -> None:
    responder.send(204, b"", headers)


async def _turn_away(responder: Responder, error: ForeignOrigin) -> None:
    responder.send(error.wire.http, msgspec.json.encode({"error": error.detail}))
