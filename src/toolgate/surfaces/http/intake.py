"""Queries and JSON bodies, checked once for every door: what could be read in two ways is refused."""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from toolgate.errors import InvalidRequest, ParseFailed

MAX_QUERY_BYTES: Final = 16 * 1024
MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 400

_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_decode = msgspec.json.Decoder().decode


def parse_query(query: bytes, known: Collection[str]) -> dict[str, str]:
    """The parameters of a query: each once, each known. Or InvalidRequest.

    A parameter in another case, or one that stands twice, might be meant to narrow: passing it over
    would show more than its author meant.
    """
    if len(query) > MAX_QUERY_BYTES:
        raise InvalidRequest(f"the query is longer than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), errors="strict"
        )
    except ValueError as exc:
        raise InvalidRequest("the query cannot be read") from exc
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            allowed = ", ".join(f"`{one}`" for one in sorted(known)) or "none"
            raise InvalidRequest(
                f"unknown parameter `{ascii(name[:40])[1:-1]}`", hint=f"this route takes {allowed}"
            )
        if name in values:
            raise InvalidRequest(f"`{name}` stands twice", hint="separate several values by commas")
        if not value.isprintable():
            raise InvalidRequest(f"`{name}` holds characters that cannot be seen")
        values[name] = value
    return values


def parse_json(body: bytes) -> Any:
    """The body as JSON that anybody can read again, or ParseFailed.

    No NaN, no number out of range, no lone surrogate, no depth or digits to exhaust a reader.
    """
    try:
        whole = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ParseFailed("the body is not JSON that can be carried") from exc
    # Counting first keeps the usual small body at two scans of the bytes.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(whole) > MAX_DEPTH:
        raise ParseFailed(f"the body is nested deeper than {MAX_DEPTH} levels")
    if len(body) > MAX_DIGITS and _LONG_DIGITS.search(body) and _has_long_integer(whole):
        raise ParseFailed(f"a number has more than {MAX_DIGITS} digits")
    return whole


def _depth(value: Any) -> int:
    """How deep containers nest, without recursion."""
    deepest, level = 0, [value]
    while containers := [one for one in level if isinstance(one, dict | list)]:
        deepest += 1
        level = [inner for one in containers for inner in _members(one)]
    return deepest


def _has_long_integer(value: Any) -> bool:
    limit, pending = 10**MAX_DIGITS, [value]
    while pending:
        one = pending.pop()
        if isinstance(one, int) and abs(one) >= limit:
            return True
        pending.extend(_members(one))
    return False


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
