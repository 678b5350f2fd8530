"""Results of servers as clients of each era take them, in bytes.

What is carried is not re-modelled: every member that need not change passes as the server wrote it. A change
is made only where a client of that era would refuse the answer, and no data is dropped for it that the
client could have used.
"""

from typing import Any, Final

import msgspec

from toolgate.errors import ServerUnavailable
from toolgate.model.tools import Era

_MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods a server may answer with `input_required`."""
_EMPTY_OBJECT: Final = msgspec.Raw(b"{}")
_EMPTY_ARRAY: Final = msgspec.Raw(b"[]")

_Members = dict[str, msgspec.Raw]
_decode = msgspec.json.decode
_decode_members = msgspec.json.Decoder(_Members).decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


class _Typed(msgspec.Struct, rename="camel"):
    result_type: Any = msgspec.UNSET


class _Required(msgspec.Struct, rename="camel"):
    input_requests: _Members = {}
    request_state: msgspec.Raw = msgspec.Raw(b"null")


_decode_typed = msgspec.json.Decoder(_Typed).decode
_decode_required = msgspec.json.Decoder(_Required).decode
_decode_state = msgspec.json.Decoder(str | None).decode


class InputNeeded(Exception):
    """A modern server asks its client for something first. No caller sees this: the gateway sees to it."""

    def __init__(self, *, input_requests: _Members, request_state: msgspec.Raw | None, result: bytes) -> None:
        super().__init__("the server needs input")
        self.input_requests = input_requests
        """By the server's own keys, and not looked into."""
        self.request_state = request_state
        """A JSON string, to be given back as it is."""
        self.result = result
        """All of it, as the server sent it."""


def adapt_result(result: bytes, *, upstream: Era, client: Era, method: str = "tools/call") -> bytes:
    """The result of `method` as a client of its era takes it; the very same object where it is.

    Raises InputNeeded where a modern server asks for input first, and ServerUnavailable where it answered
    with something that nobody can act on.
    """
    if upstream == client == "legacy" and result.lstrip()[:1] == b"{":
        return result
    try:
        kind = _decode_typed(result).result_type
        if kind is not msgspec.UNSET and kind != "complete":
            raise _uncommon(kind, result, upstream=upstream, method=method)
        if client == "legacy":
            return _as_legacy(result, method)
        if method == "resources/read":
            return _as_cacheable(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ServerUnavailable("the server answered with a result that cannot be read") from exc
    return _as_complete(result) if kind is msgspec.UNSET else result


def _uncommon(kind: object, result: bytes, *, upstream: Era, method: str) -> Exception:
    """What a result that is not complete comes to. One of no known kind is refused, never guessed at."""
    if kind != "input_required" or upstream == "legacy" or method not in _ASKING:
        return ServerUnavailable("the server answered with a kind of result that this gateway does not carry")
    required = _decode_required(result)
    state = None if _decode_state(required.request_state) is None else required.request_state
    if not required.input_requests and state is None:
        return ServerUnavailable("the server needs input and does not say what")
    return InputNeeded(input_requests=required.input_requests, request_state=state, result=result)


def _as_complete(result: bytes) -> bytes:
    members = result.strip()[1:].lstrip()
    comma = b"" if members == b"}" else b","
    return b'{"resultType":"complete"%b%b' % (comma, members)


def _as_cacheable(result: bytes) -> bytes:
    """What was read is this caller's alone, whatever its server says of others."""
    members = _decode_members(result)
    ttl = _decode(members.get("ttlMs", b"0"))
    members["resultType"] = msgspec.Raw(b'"complete"')
    members["ttlMs"] = msgspec.Raw(b"%d" % (ttl if type(ttl) is int and ttl > 0 else 0))
    members["cacheScope"] = msgspec.Raw(b'"private"')
    return _encode(members)


def _as_legacy(result: bytes, method: str) -> bytes:
    members = _decode_members(result)
    for key in _MODERN_MEMBERS:
        members.pop(key, None)
    structured = members.get("structuredContent", _EMPTY_OBJECT)
    if method == "tools/call" and not isinstance(_decode(structured), dict):
        del members["structuredContent"]
        members["content"] = _say_in_text(members.get("content", _EMPTY_ARRAY), structured)
    return _encode(members)


def _say_in_text(content: msgspec.Raw, structured: msgspec.Raw) -> msgspec.Raw:
    """`content` with the value legacy has no place for, unless it is nothing or said in text already."""
    value = _decode(structured)
    said = [block.get("text") for block in _decode(content, type=list[dict[str, Any]])]
    if value is None or any(_spells(text, value) for text in said):
        return content
    blocks: list[object] = [*_decode(content, type=list[msgspec.Raw])]
    return msgspec.Raw(_encode([*blocks, {"type": "text", "text": bytes(structured).decode()}]))


def _spells(text: object, value: object) -> bool:
    try:
        # Compared as bytes: to Python, `1`, `1.0` and `true` are all one.
        return isinstance(text, str) and _encode_canonical(_decode(text)) == _encode_canonical(value)
    except (msgspec.DecodeError, RecursionError):
        return False
