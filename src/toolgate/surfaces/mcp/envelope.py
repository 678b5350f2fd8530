"""The JSON-RPC envelope: parsed once, checked whole, and everything that is only carried left raw.

The whole body is decoded once to prove it is JSON that any server can read again (no NaN, no numbers
out of range, no lone surrogates, no depth bomb). What travels on are the bytes as they came.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRequest, ParseFailed

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 400
MAX_ID_BYTES: Final = 256
MAX_NAME_CHARS: Final = 256

Params = dict[str, msgspec.Raw]

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_LONG_DIGITS = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_NOTHING: Final = msgspec.Raw(b"")
_decode_text = msgspec.json.Decoder(str).decode


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str = ""
    id: msgspec.Raw = _NOTHING
    method: str = ""
    params: Params = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class Message:
    """One request or notification. `id` is the caller's own bytes, answered as they came."""

    method: str
    params: Params
    id: bytes | None

    def text(self, member: str) -> str | None:
        """A string member of `params`, or None where it is absent."""
        raw = self.params.get(member)
        if raw is None:
            return None
        try:
            return _decode_text(raw)
        except msgspec.ValidationError as exc:
            raise InvalidParams(f"`{member}` must be a string") from exc


_decode_any = msgspec.json.Decoder().decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def parse_message(body: bytes) -> Message:
    """One JSON-RPC request or notification, or ParseFailed / InvalidRequest."""
    whole = _parse_json(body)
    try:
        envelope = _decode_envelope(body)
    except msgspec.ValidationError as exc:
        # Batches went with revision 2025-06-18; nothing of one is executed.
        raise InvalidRequest("the body must be one JSON-RPC request; batches are not served") from exc
    if envelope.jsonrpc != "2.0" or "method" not in whole:
        raise InvalidRequest("the body is not a JSON-RPC 2.0 request or notification")
    if len(envelope.method) > MAX_NAME_CHARS:
        raise InvalidRequest("`method` is too long")
    meta = envelope.params.get("_meta")
    if meta is not None and memoryview(meta)[0] != ord("{"):
        raise InvalidRequest("`_meta` must be an object")
    return Message(envelope.method, envelope.params, _parse_id(bytes(envelope.id)) if "id" in whole else None)


def _parse_json(body: bytes) -> Any:
    try:
        whole = _decode_any(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ParseFailed("the body is not JSON that can be carried") from exc
    # Counting first keeps the usual small body at two scans of the bytes.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(whole) > MAX_DEPTH:
        raise ParseFailed(f"the body is nested deeper than {MAX_DEPTH} levels")
    if len(body) > MAX_DIGITS and _LONG_DIGITS.search(body) and _has_long_integer(whole):
        raise ParseFailed(f"a number has more than {MAX_DIGITS} digits")
    return whole


def _parse_id(raw: bytes) -> bytes:
    is_text = raw[:1] == b'"' and len(raw) <= MAX_ID_BYTES
    if is_text or _INTEGER.fullmatch(raw):
        return raw
    raise InvalidRequest("`id` must be a string of at most 256 bytes or a 64-bit integer")


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
