"""The web console: `/console` and all paths below it, the same files for every caller.

The files are built from the repository's `console` directory and read once, at the start: afterwards a path
is only looked up and never opens a file. The console gets its data from the REST API, with the credential of
its user. This endpoint needs no protection: it reads no credential, query or body, and no response contains
anything of a request.
"""

import re
import secrets
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from toolgate.errors import MethodNotAllowed, NotFound, StartRefused, ToolgateError
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.messages import HttpHandler, HttpRequest, Responder, encode_error

PAGE: Final = "index.html"
ASSETS: Final = "assets/"
"""Below this path, the name of a file changes with its content."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit of all files together."""
ENCODINGS: Final[Mapping[str, str]] = {"br": ".br", "gzip": ".gz"}
"""The encodings of the built files, the smallest first."""
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleFile:
    """One file, ready to send."""

    media_type: str
    is_immutable: bool
    """Whether its name changes with its content."""
    digest: str
    bodies: Mapping[str, bytes]
    """The bodies by encoding. The key of the plain body is the empty text."""


@dataclass(frozen=True, slots=True)
class Console:
    """A built console: its page, and all other files by path."""

    page: bytes
    files: Mapping[str, ConsoleFile]


def find_console() -> Path | None:
    """The directory of the built console: in the package, or in a checkout where it is built."""
    package = Path(__file__).parent
    repository = package.parents[3]
    places = [package / "static"]
    if (repository / "console" / "package.json").is_file():
        places.append(repository / "build" / "console")
    return next((place for place in places if (place / PAGE).is_file()), None)


def load_console(directory: Path, *, max_bytes: int = MAX_BYTES) -> Console:
    """Read the console in `directory`. Raises StartRefused."""
    try:
        read = dict(_read(directory, max_bytes))
    except OSError as exc:
        raise StartRefused(f"cannot read the console in `{directory}`: {exc}") from exc
    page = read.pop(PAGE, None)
    if page is None:
        raise StartRefused(f"`{PAGE}` is missing in `{directory}`", hint="build the console again")
    twins = tuple(ENCODINGS.values())
    return Console(page, {name: _file(name, read) for name in read if not name.endswith(twins)})


def _read(directory: Path, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    left = max_bytes
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            left -= path.stat().st_size
            if left < 0:
                raise StartRefused(f"the console files in `{directory}` have more than {max_bytes} bytes")
            yield path.relative_to(directory).as_posix(), path.read_bytes()


def _file(name: str, read: Mapping[str, bytes]) -> ConsoleFile:
    encoded = {
        encoding: read[name + suffix] for encoding, suffix in ENCODINGS.items() if name + suffix in read
    }
    return ConsoleFile(
        media_type=_TYPES.get(Path(name).suffix, "application/octet-stream"),
        is_immutable=name.startswith(ASSETS),
        digest=sha256(read[name]).hexdigest()[:32],
        bodies={**encoded, "": read[name]},
    )


NONCE: Final = b"__NONCE__"
"""The placeholder of the nonce in the page."""
NONCE_BYTES: Final = 16  # the 128 bits that CSP Level 3 asks for
ROOT: Final = "/console/"
_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*0(?:\.0*)?\s*")
"""The weight of an encoding that the client rejects."""
_METHODS: Final = ("GET", "HEAD")
_NOT_BUILT: Final = "run `make console` in the repository; every wheel of Toolgate contains the built console"

# Scripts come only from our files. Styles may also come from elements that the page creates with its nonce.
# The page loads from this gateway only, and calls no other host.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'{nonce}; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_DISABLED_FEATURES: Final = (
    "accelerometer autoplay camera display-capture geolocation gyroscope hid magnetometer microphone midi "
    "payment serial usb"
)
"""The browser features that no page of the console may use, by names that Chromium knows: others are warnings
on every page."""
_HARDENING: Final[Mapping[str, str]] = {
    "content-security-policy": _POLICY.format(nonce=""),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": ", ".join(f"{feature}=()" for feature in _DISABLED_FEATURES.split()),
    "cache-control": "no-store",
}


class ConsoleEndpoint:
    """Serves the console, and passes all other requests to `beyond`. None: the console is not built, and
    requests for it fail with a hint."""

    def __init__(self, console: Console | None, beyond: HttpHandler) -> None:
        self._console = console
        self._beyond = beyond
        self.path = None if console is None else ROOT
        """The path of the console. None: it is not built."""

    def __call__(self, request: HttpRequest, responder: Responder) -> Awaitable[None]:
        path = request.path
        if path == "/console" or path.startswith("/console/"):
            return self._serve(request, responder)
        is_browser = request.method in _METHODS and "text/html" in (request.header("accept") or "")
        if path == "/" and self._console is not None and is_browser:
            return _send(responder, 302, headers={"location": ROOT, "vary": "accept"})
        return self._beyond(request, responder)

    async def _serve(self, request: HttpRequest, responder: Responder) -> None:
        try:
            await self._respond(request, responder)
        except ToolgateError as exc:
            allowed = {"allow": ", ".join(_METHODS)} if isinstance(exc, MethodNotAllowed) else {}
            await _send(responder, exc.wire.http, encode_error(exc), allowed)

    async def _respond(self, request: HttpRequest, responder: Responder) -> None:
        if request.method not in _METHODS:
            raise MethodNotAllowed("the console is read-only", data={"allowed": list(_METHODS)})
        if self._console is None:
            raise NotFound("the console is not built", hint=_NOT_BUILT)
        name = request.path[len(ROOT) :]
        file = self._console.files.get(name)
        if file is not None:
            await _send_file(responder, file, request)
            return
        if name.startswith(ASSETS):
            raise NotFound("the console has no such file", hint="reload the page: the console was rebuilt")
        nonce = secrets.token_urlsafe(NONCE_BYTES)  # for this response only
        policy = _POLICY.format(nonce=f" 'nonce-{nonce}'")
        headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": policy}
        await _send(responder, 200, self._console.page.replace(NONCE, nonce.encode("ascii")), headers)


async def _send_file(responder: Responder, file: ConsoleFile, request: HttpRequest) -> None:
    offered = (one.partition(";") for one in (request.header("accept-encoding") or "").lower().split(","))
    accepted = {name.strip() for name, _, weight in offered if not _ZERO_WEIGHT.fullmatch(weight)}
    encoding = next((one for one in file.bodies if one in accepted), "")
    etag = f'"{file.digest}{encoding and "-"}{encoding}"'
    headers = {
        "etag": etag,
        "cache-control": "public, max-age=31536000, immutable" if file.is_immutable else "no-cache",
        "vary": "accept-encoding",
    }
    known = request.header("if-none-match") or ""
    if known.strip() == "*" or etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        await _send(responder, 304, headers=headers)
        return
    headers["content-type"] = file.media_type
    if encoding:
        headers["content-encoding"] = encoding
    await _send(responder, 200, file.bodies[encoding], headers)


async def _send(
    responder: Responder, status: int, body: bytes = b"", headers: Mapping[str, str] = EMPTY
) -> None:
    """Send a response. `headers` are in addition to those of every response, or instead of them."""
    sent = {**_HARDENING, **headers}
    responder.send(status, body, [(name.encode(), value.encode()) for name, value in sent.items()])
