"""Checks Host, Origin and CORS before every endpoint, so that no foreign web page can call a local gateway.

Runs before any route is matched, so a new route cannot forget it (DNS rebinding). A page is allowed only by
its origin, and authenticates by a bearer token like other clients. Never allows cookies. Trust in local
callers never applies to a page from another machine. It applies to a page on loopback for tools and models,
but not for the REST API, which requires a key.
"""

import re
from collections.abc import Awaitable, Iterable
from typing import Final
from urllib.parse import urlsplit

from toolgate.errors import ForeignOrigin
from toolgate.surfaces.http.messages import Headers, HttpHandler, HttpRequest, Responder, encode_error

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_AGE_S: Final = 7_200  # how long a browser may cache a preflight: Chromium's limit
MAX_HEADERS_BYTES: Final = 4_096  # two hundred names of usual length
_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = (
    b"WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, ETag, X-Request-Id, "
    b"Toolgate-Revision"
)
_HEADER_NAMES: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*"
)


def is_preflight(request: HttpRequest) -> bool:
    """Whether it is a CORS preflight."""
    return request.method == "OPTIONS" and b"access-control-request-method" in request.headers


def _preflight_headers(request: HttpRequest) -> Headers:
    """All methods, and the headers that the page requests (`Mcp-Param-…` may have any name)."""
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", b"%d" % MAX_AGE_S)]
    wanted = request.headers.get(b"access-control-request-headers", b"")
    if len(wanted) <= MAX_HEADERS_BYTES and _HEADER_NAMES.fullmatch(wanted):
        headers.append((b"access-control-allow-headers", wanted))
    if request.headers.get(b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers


MAX_KNOWN: Final = 64  # cached hosts: a gateway has few names, but clients may add any port
MAX_SHOWN: Final = 200  # characters of an origin in the error


class OriginGuard:
    """Passes requests with this gateway as their host that do not come from a foreign page."""

    def __init__(self, handler: HttpHandler, hosts: Iterable[str], origins: Iterable[str] = ()) -> None:
        """`origins`: further origins whose pages may call it, as browsers send them."""
        self._handler = handler
        self._origins = {one.encode(): urlsplit(one).hostname in LOOPBACK_NAMES for one in origins}
        """Whether each origin is on loopback, so that a program of this machine serves its pages."""
        self._hosts = frozenset(host.lower() for host in hosts)
        self._known: set[bytes] = set()

    def __call__(self, request: HttpRequest, responder: Responder) -> Awaitable[None]:
        headers = request.headers
        if b"origin" not in headers and headers.get(b"host") in self._known:
            return self._handler(request, responder)
        problem = self._problem(request)
        if problem is not None:
            return _send(responder, problem.wire.http, encode_error(problem))
        origin = headers.get(b"origin", b"")
        if origin in self._origins:
            return self._serve_page(request, responder, origin)
        return self._handler(request, responder)

    def _serve_page(self, request: HttpRequest, responder: Responder, origin: bytes) -> Awaitable[None]:
        """Serve a request from a page of an allowed origin. Preflights never reach an endpoint."""
        responder.add_headers(
            [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"Origin"),
            ]
        )
        if is_preflight(request):
            return _send(responder, 204, headers=_preflight_headers(request))
        request.is_from_elsewhere = not self._origins[origin]
        # The console's origin may be in the list, too.
        request.is_from_other_origin = origin.partition(b"://")[2] != request.headers.get(b"host")
        return self._handler(request, responder)

    def _problem(self, request: HttpRequest) -> ForeignOrigin | None:
        host = request.headers.get(b"host")
        origin = request.headers.get(b"origin")
        if host is None or self._is_foreign("//" + host.decode("latin-1")):
            return ForeignOrigin("the `Host` header does not name this gateway")
        if origin is not None and not self._is_allowed_origin(origin, request):
            shown = ascii(origin.decode("latin-1")[:MAX_SHOWN])[1:-1]
            return ForeignOrigin(
                f"the request comes from a page of the origin `{shown}`, which is not allowed",
                hint=f"to allow its pages, add `{shown}` to `allowed_origins`",
            )
        if len(self._known) < MAX_KNOWN:
            self._known.add(host)
        return None

    def _is_allowed_origin(self, origin: bytes, request: HttpRequest) -> bool:
        """Whether a page may call: from this host, without a preflight, or from a listed origin."""
        if origin in self._origins:
            return True
        is_foreign = self._is_foreign(origin.decode("latin-1"), schemes=("http", "https"))
        return not is_foreign and not is_preflight(request)

    def _is_foreign(self, url: str, schemes: tuple[str, ...] = ("",)) -> bool:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises on an invalid port
        except ValueError:
            return True
        is_bare = (
            parts.path in {"", "/"} and not parts.query and not parts.fragment and parts.username is None
        )
        return not is_bare or parts.scheme not in schemes or parts.hostname not in self._hosts


async def _send(responder: Responder, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    responder.send(status, body, headers)
