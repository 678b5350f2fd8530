"""Parses TOML and JSON of others within bounds. Uses only the standard library, because CLI commands load it.

Never accepts a document that two parsers could read differently.
"""

import json
import re
import tomllib
from typing import Any, Final

MAX_KEY_PARTS: Final = 32  # `tomllib` takes gigabytes for a key of some ten thousand parts
_PART: Final = r"""[ \t]*+(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_DEEP_KEY: Final = re.compile(rf"(?:^|[{{,\[]){_PART}(?:\.{_PART}){{{MAX_KEY_PARTS}}}", re.MULTILINE)
_TOML_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")


class DocumentError(Exception):
    """The error in a document, with its line if known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises TOMLDecodeError, and RecursionError if it is nested too deeply."""
    if found := _DEEP_KEY.search(text):
        line = text.count("\n", 0, found.start() + 1) + 1
        raise tomllib.TOMLDecodeError(f"A key has more than {MAX_KEY_PARTS} parts (at line {line}, column 1)")
    return tomllib.loads(text)


def parse_document(text: str, *, is_toml: bool) -> dict[str, Any]:
    """Parse one TOML document or one JSON object. Raises DocumentError."""
    try:
        if is_toml:
            return parse_toml(text)
        body = json.loads(text, object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant)
    except json.JSONDecodeError as exc:
        raise DocumentError(f"is not JSON: {exc.msg}", exc.lineno) from exc
    except tomllib.TOMLDecodeError as exc:
        place = _TOML_LINE.search(str(exc))
        message = _TOML_LINE.sub("", str(exc)).strip()
        raise DocumentError(f"is not TOML: {message}", int(place[1]) if place else None) from exc
    except (ValueError, RecursionError) as exc:
        raise DocumentError(f"cannot be parsed: {exc}") from exc
    if not isinstance(body, dict):
        raise DocumentError("does not contain exactly one object", 1)
    return body


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a duplicate member")
    return members


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")
