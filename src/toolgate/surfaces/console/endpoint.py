"""`/console` and all below it: the files of the console, and its page for every path that is one of its own.

What goes out was read at the start. Nothing of a request is in any answer.
"""

import re
import secrets
from collections.abc import Awaitable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from toolgate.errors import MethodNotAllowed, NotFound, ToolgateError
from toolgate.model.servers import EMPTY
from toolgate.surfaces.console.files import ASSETS, Console, ConsoleFile
from toolgate.surfaces.http.messages import HttpHandler, HttpRequest, Responder

NONCE: Final = b"__NONCE__"
"""Where in the page its nonce goes."""
NONCE_BYTES: Final = 16
ROOT: Final = "/console/"
_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*0(?:\.0*)?\s*")
"""The weight of what is not wanted."""
_METHODS: Final = ("GET", "HEAD")
_NOT_BUILT: Final = "run `make console` in the repository; every wheel of Toolgate has it built in"

# Scripts from our files alone. Styles also from elements that the page makes, and marks with its nonce.
# The page loads from this gateway only, and calls no other host.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'{nonce}; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_DISABLED_FEATURES: Final = (
    "accelerometer autoplay bluetooth camera display-capture geolocation gyroscope hid magnetometer "
    "microphone midi payment serial usb"
)
"""What of a browser no page of the console may use."""
_HARDENING: Final[Mapping[str, str]] = {
    "content-security-policy": _POLICY.format(nonce=""),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": ", ".join(f"{feature}=()" for feature in _DISABLED_FEATURES.split()),
    "cache-control": "no-store",
}


class _ConsoleReply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = EMPTY
    """In addition to those of every reply, or in their place."""


class ConsoleEndpoint:
    """Serves the console, and hands everything else to `beyond`. None: it is not built, and that is said."""

    def __init__(self, console: Console | None, beyond: HttpHandler) -> None:
        self._console = console
        self._beyond = beyond
        self.path = None if console is None else ROOT
        """Where it is. None: nowhere."""

    def __call__(self, request: HttpRequest, responder: Responder) -> Awaitable[None]:
        path = request.path
        if path == "/console" or path.startswith("/console/"):
            return _send(responder, self._reply(request))
        if path == "/" and self._console is not None and _is_browser(request):
            return _send(responder, _ConsoleReply(302, headers={"location": ROOT, "vary": "accept"}))
        return self._beyond(request, responder)

    def _reply(self, request: HttpRequest) -> _ConsoleReply:
        try:
            return self._found(request)
        except ToolgateError as exc:
            allowed = {"allow": ", ".join(_METHODS)} if isinstance(exc, MethodNotAllowed) else {}
            return _ConsoleReply(exc.wire.http, msgspec.json.encode({"error": exc.detail}), allowed)

    def _found(self, request: HttpRequest) -> _ConsoleReply:
        if request.method not in _METHODS:
            raise MethodNotAllowed("the console is only read", data={"allowed": list(_METHODS)})
        if self._console is None:
            raise NotFound("the console is not built here", hint=_NOT_BUILT)
        name = request.path[len(ROOT) :]
        file = self._console.files.get(name)
        if file is not None:
            return _file_reply(file, request)
        if name.startswith(ASSETS):
            raise NotFound(
                "the console has no such file", hint="load the page again: the console was rebuilt"
            )
        return _page_reply(self._console.page)


def _page_reply(page: bytes) -> _ConsoleReply:
    """The page, with a nonce that is good for this reply alone."""
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    return _ConsoleReply(
        200,
        page.replace(NONCE, nonce.encode("ascii")),
        {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": _POLICY.format(nonce=f" 'nonce-{nonce}'"),
        },
    )


def _file_reply(file: ConsoleFile, request: HttpRequest) -> _ConsoleReply:
    accepted = set(_accepted(_header(request, b"accept-encoding")))
    encoding = next((one for one in file.bodies if one in accepted), "")
    etag = f'"{file.digest}{encoding and "-"}{encoding}"'
    headers = {
        "etag": etag,
        "cache-control": "public, max-age=31536000, immutable" if file.is_immutable else "no-cache",
        "vary": "accept-encoding",
    }
    if _is_known(etag, _header(request, b"if-none-match")):
        return _ConsoleReply(304, headers=headers)
    encoded = {"content-encoding": encoding} if encoding else {}
    return _ConsoleReply(200, file.bodies[encoding], {"content-type": file.media_type, **headers, **encoded})


def _accepted(text: str) -> Iterator[str]:
    """The encodings that an `Accept-Encoding` names and does not refuse."""
    for part in text.lower().split(","):
        name, _, weight = part.partition(";")
        if not _ZERO_WEIGHT.fullmatch(weight):
            yield name.strip()


def _is_known(etag: str, text: str) -> bool:
    """Whether an `If-None-Match` names what would be sent."""
    return text.strip() == "*" or etag in (one.strip().removeprefix("W/") for one in text.split(","))


def _is_browser(request: HttpRequest) -> bool:
    return request.method in _METHODS and "text/html" in _header(request, b"accept")


def _header(request: HttpRequest, name: bytes) -> str:
    return request.headers.get(name, b"").decode("latin-1")


async def _send(responder: Responder, reply: _ConsoleReply) -> None:
    headers = {**_HARDENING, **reply.headers}
    responder.send(
        reply.status, reply.body, [(name.encode(), value.encode()) for name, value in headers.items()]
    )
