"""Results of servers as clients of each era take them, in bytes.

What is carried is not re-modelled: every member that need not change passes as the server wrote it. A change
is made only where a client of that era would refuse the answer, and no data is dropped for it that the
client could have used.
"""

from typing import Any, Final

import msgspec

from toolgate.errors import ServerUnavailable, ToolgateError
from toolgate.model.raw import Members, decode_members
from toolgate.model.tools import Era

ERROR_META: Final = "toolgate/error"

_MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_COMPLETE: Final = b'"complete"'
_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods a server may answer with `input_required`."""
_EMPTY_OBJECT: Final = msgspec.Raw(b"{}")
_EMPTY_ARRAY: Final = msgspec.Raw(b"[]")
_NULL: Final = msgspec.Raw(b"null")

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


_decode_state = msgspec.json.Decoder(str | None).decode


class InputNeeded(Exception):
    """A modern server asks its client for something first. No caller sees this: the gateway sees to it."""

    def __init__(self, *, input_requests: Members, request_state: msgspec.Raw | None, result: bytes) -> None:
        super().__init__("the server needs input")
        self.input_requests = input_requests
        """By the server's own keys, and not looked into."""
        self.request_state = request_state
        """A JSON string, to be given back as it is."""
        self.result = result
        """All of it, as the server sent it."""


def adapt_result(result: Members, *, upstream: Era, client: Era, method: str = "tools/call") -> bytes:
    """The result of `method` as a client of its era takes it.

    Raises InputNeeded where a modern server asks for input first, and ServerUnavailable where it answered
    with something that nobody can act on.
    """
    if upstream == client == "legacy":
        return _encode(result)
    kind = result.get("resultType")
    try:
        if kind is not None and bytes(kind) != _COMPLETE and _decode(kind) != "complete":
            raise _uncommon(_decode(kind), result, upstream=upstream, method=method)
        if client == "legacy":
            return _as_legacy(result, method)
        if method == "resources/read":
            return _as_cacheable(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ServerUnavailable("the server answered with a result that cannot be read") from exc
    return _encode(result if kind is not None else {"resultType": msgspec.Raw(_COMPLETE), **result})


def failure_result(exc: ToolgateError) -> Members:
    """A failure as a tool's result, so that a model can act on it. Its text begins with the code."""
    text = f"{exc.code}: {exc}. {exc.hint}"
    detail = {**exc.detail, "retryable": exc.retryable}
    result = {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {ERROR_META: detail}}
    return {name: msgspec.Raw(_encode(value)) for name, value in result.items()}


def _uncommon(kind: object, result: Members, *, upstream: Era, method: str) -> Exception:
    """What a result that is not complete comes to. One of no known kind is refused, never guessed at."""
    if kind != "input_required" or upstream == "legacy" or method not in _ASKING:
        return ServerUnavailable("the server answered with a kind of result that this gateway does not carry")
    questions = decode_members(result.get("inputRequests", _EMPTY_OBJECT))
    state = result.get("requestState", _NULL)
    is_stateless = _decode_state(state) is None
    if not questions and is_stateless:
        return ServerUnavailable("the server needs input and does not say what")
    return InputNeeded(
        input_requests=questions, request_state=None if is_stateless else state, result=_encode(result)
    )


def _as_cacheable(result: Members) -> bytes:
    """What was read is this caller's alone, whatever its server says of others."""
    ttl = _decode(result.get("ttlMs", b"0"))
    own = {
        "resultType": msgspec.Raw(_COMPLETE),
        "ttlMs": msgspec.Raw(b"%d" % (ttl if type(ttl) is int and ttl > 0 else 0)),
        "cacheScope": msgspec.Raw(b'"private"'),
    }
    return _encode({**result, **own})


def _as_legacy(result: Members, method: str) -> bytes:
    members = {name: raw for name, raw in result.items() if name not in _MODERN_MEMBERS}
    structured = members.get("structuredContent")
    if structured is not None and method == "tools/call" and bytes(structured)[:1] != b"{":
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
