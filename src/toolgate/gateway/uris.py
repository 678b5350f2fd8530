"""URIs that a caller wrote, as plainly as they can be written: rules must hold however one is spelled."""

import re
from typing import Final
from urllib.parse import unquote

_MAX_DECODED: Final = 4
"""A URI that is encoded more often has something to hide."""
_SEPARATOR: Final = re.compile(r"[/?#;]")
_SLASHES: Final = re.compile(r"(?<!:)//+")
_HERE: Final = re.compile(r"(?<=/)\./|(?<=/)\.$")


def plain_uri(uri: str) -> str | None:
    """What a server may take `uri` for. None where that may be anything: it leads upwards, or hides its end.

    Nobody else's URI is told from this one by it: it only serves to hold rules against.
    """
    text = _decoded(uri)
    if text is None or not uri.isprintable() or "\0" in text:
        return None
    text = text.replace("\\", "/")
    if ".." in _SEPARATOR.split(text):
        return None
    scheme, colon, rest = text.partition(":")
    if not colon:
        return _tidy(text)
    if not rest.startswith("//"):
        return f"{scheme.lower()}:{_tidy(rest)}"
    host, slash, path = rest[2:].partition("/")
    host = "" if host.lower() == "localhost" else host
    return f"{scheme.lower()}://{_tidy(host + slash + path)}"


def _decoded(text: str) -> str | None:
    for _ in range(_MAX_DECODED):
        decoded = unquote(text)
        if decoded == text:
            return text
        text = decoded
    return None


def _tidy(path: str) -> str:
    return _SLASHES.sub("/", _HERE.sub("", _SLASHES.sub("/", path)))
