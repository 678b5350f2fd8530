"""Definitions and results as clients of each era take them, in bytes.

What is carried is not re-modelled: every member that need not change passes as the server wrote it, so
`$defs`, `_meta`, vendor keys and content of kinds yet unknown survive. A change is made only where a client
of that era would refuse the answer, and no data is dropped for it that the client could have used.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolgate.catalog.schemas import legacy_form
from toolgate.errors import ServerUnavailable
from toolgate.model.tools import Era, ToolDefinition

_MODERN_MEMBERS: Final = ("resultType", "ttlMs", "cacheScope")
_SCHEMAS: Final = ("inputSchema", "outputSchema")
_EMPTY_OBJECT: Final = msgspec.Raw(b"{}")
_EMPTY_ARRAY: Final = msgspec.Raw(b"[]")

_Members = dict[str, msgspec.Raw]
_decode = msgspec.json.decode
_decode_members = msgspec.json.Decoder(_Members).decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


class _Typed(msgspec.Struct, rename="camel"):
    result_type: Any = msgspec.UNSET


_decode_typed = msgspec.json.Decoder(_Typed).decode


def encode_definition(definition: ToolDefinition, name: str, *, era: Era) -> bytes:
    """The server's own JSON under the door's `name` for it; for legacy clients, with schemas they take."""
    members = _decode_members(definition.raw)
    members["name"] = msgspec.Raw(_encode(name))
    if era == "legacy" and not definition.is_legacy_safe:
        _downgrade(members)
    return _encode(members)


def encode_page(
    tools: Sequence[bytes], *, era: Era, next_cursor: str | None, ttl_ms: int, meta: Mapping[str, Any]
) -> bytes:
    """The result of `tools/list` with `tools` in the order given. A scoped list is never `public`."""
    parts = [b'{"tools":[%b]' % b",".join(tools)]
    if next_cursor is not None:
        parts.append(b'"nextCursor":%b' % _encode(next_cursor))
    if era == "modern":
        parts.append(b'"resultType":"complete","ttlMs":%d,"cacheScope":"private"' % ttl_ms)
    if meta:
        parts.append(b'"_meta":%b' % _encode(meta))
    return b",".join(parts) + b"}"


def adapt_result(result: bytes, *, upstream: Era, client: Era) -> bytes:
    """The result of a `tools/call` as a client of its era takes it; the very same object where it is.

    Raises ServerUnavailable where the server answered with something this client cannot act on.
    """
    if upstream == client == "legacy" and result.lstrip()[:1] == b"{":
        return result
    try:
        kind = _decode_typed(result).result_type
        _check_kind(kind, upstream=upstream, client=client)
        if client == "legacy":
            return _as_legacy(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ServerUnavailable("the server answered with a result that cannot be read") from exc
    return _as_complete(result) if kind is msgspec.UNSET else result


def _check_kind(kind: object, *, upstream: Era, client: Era) -> None:
    """A result kind means something to both sides, or it is refused: guessing would read it as complete."""
    if kind is msgspec.UNSET or kind == "complete":
        return
    if kind != "input_required" or upstream == "legacy":
        raise ServerUnavailable("the server answered with a kind of result that this gateway does not carry")
    if client == "legacy":
        raise ServerUnavailable(
            "the tool asks for input that this client cannot give",
            hint="call it from a client that speaks MCP 2026-07-28",
        )


def _as_complete(result: bytes) -> bytes:
    members = result.strip()[1:].lstrip()
    comma = b"" if members == b"}" else b","
    return b'{"resultType":"complete"%b%b' % (comma, members)


def _as_legacy(result: bytes) -> bytes:
    members = _decode_members(result)
    for key in _MODERN_MEMBERS:
        members.pop(key, None)
    structured = members.get("structuredContent", _EMPTY_OBJECT)
    if not isinstance(_decode(structured), dict):
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


def _downgrade(members: _Members) -> None:
    """Schemas as legacy clients take them. An output schema they have no words for is left out."""
    for key in _SCHEMAS:
        schema = _decode(members.get(key, _EMPTY_OBJECT))
        form = legacy_form(schema)
        if form is None:
            members.pop(key, None)
        elif form is not schema:
            members[key] = msgspec.Raw(_encode(form))
