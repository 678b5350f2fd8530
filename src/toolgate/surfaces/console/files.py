"""The files of the console, read once: from then on a path is looked up, and never taken for a file's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from toolgate.errors import StartRefused

PAGE: Final = "index.html"
ASSETS: Final = "assets/"
"""Below it, the name of a file changes with its content."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of all files together."""
ENCODINGS: Final[Mapping[str, str]] = {"br": ".br", "gzip": ".gz"}
"""The encodings that a file may also lie there in, the smallest first."""
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
    """One file as it is sent."""

    media_type: str
    is_immutable: bool
    """Its name changes with its content."""
    digest: str
    bodies: Mapping[str, bytes]
    """By encoding; that of none is the empty text."""


@dataclass(frozen=True, slots=True)
class Console:
    """A built console: its page, and all other files by their paths."""

    page: bytes
    files: Mapping[str, ConsoleFile]


def find_console() -> Path | None:
    """Where the console of this installation is: in the package, or in a checkout where it is built."""
    package = Path(__file__).parent
    repository = package.parents[3]
    places = [package / "static"]
    if (repository / "console" / "package.json").is_file():
        places.append(repository / "build" / "console")
    return next((place for place in places if (place / PAGE).is_file()), None)


def load_console(directory: Path) -> Console:
    """The console in `directory`. Raises StartRefused."""
    try:
        read = dict(_read(directory))
    except OSError as exc:
        raise StartRefused(f"cannot read the console in `{directory}`: {exc}") from exc
    page = read.pop(PAGE, None)
    if page is None:
        raise StartRefused(f"there is no `{PAGE}` in `{directory}`", hint="build the console again")
    twins = tuple(ENCODINGS.values())
    return Console(page, {name: _file(name, read) for name in read if not name.endswith(twins)})


def _read(directory: Path) -> Iterator[tuple[str, bytes]]:
    left = MAX_BYTES
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            left -= path.stat().st_size
            if left < 0:
                raise StartRefused(f"the files in `{directory}` have more than {MAX_BYTES} bytes")
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
