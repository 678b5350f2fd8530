"""Cross-origin requests of browser clients (CORS): which pages may call, and what they get to read.

A page is allowed by its origin alone, and proves itself by a bearer token like any other client. No cookie is
ever allowed, and a page that is not on loopback never profits from the trust in local callers. One on
loopback does where tools and models are called; the REST API, by which the gateway is administered, needs a
key.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from toolgate.surfaces.http.messages import Headers, Request

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_AGE_S: Final = 7_200
"""How long a browser may remember a preflight; Chromium does not go further."""
MAX_HEADERS_BYTES: Final = 4_096
_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = (
    b"WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, ETag, X-Request-Id, "
    b"Toolgate-Revision"
)
_HEADER_NAMES: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*"
)


class Origins:
    """The origins whose pages may call this gateway."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = {one.encode(): urlsplit(one).hostname in LOOPBACK_NAMES for one in allowed}

    def __contains__(self, origin: bytes) -> bool:
        return origin in self._allowed

    def response_headers(self, origin: bytes) -> Headers:
        """What lets the page read a response."""
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def is_local(self, origin: bytes) -> bool:
        """Whether an allowed origin is on loopback: a program of this machine serves its pages."""
        return self._allowed[origin]


def is_preflight(request: Request) -> bool:
    """Whether a browser asks what a page may send, before it sends it."""
    return request.method == "OPTIONS" and b"access-control-request-method" in request.headers


def preflight_headers(request: Request) -> Headers:
    """What a page may send: every method, and the headers that it asks for (`Mcp-Param-…` has any name)."""
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
    ]
    wanted = request.headers.get(b"access-control-request-headers", b"")
    if len(wanted) <= MAX_HEADERS_BYTES and _HEADER_NAMES.fullmatch(wanted):
        headers.append((b"access-control-allow-headers", wanted))
    if request.headers.get(b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return headers
