"""What a model reads of a tool's result. A result of a tool is text there; whatever is not is said to be.

Total: servers send all kinds of things, and none of them may cost a conversation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolgate.chat.calls import CallError
from toolgate.errors.wires import WIRE
from toolgate.model.raw import UNREADABLE, Members

TOOL_ERROR: Final = "tool_error"
_CUT: Final = "… [cut: {kept:,} of {size:,} bytes]"
_NOTHING: Final = "[the tool returned nothing]"
_decode = msgspec.json.decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


def tool_text(result: Members, *, max_bytes: int) -> tuple[str, bool]:
    """A result of `tools/call` as one text of at most `max_bytes`, and whether the tool failed."""
    try:
        value = {name: _decode(raw) for name, raw in result.items()}
    except UNREADABLE:
        value = {"isError": True, "content": [_block("the result cannot be read")]}
    text = "\n".join(_lines(value)) or _NOTHING
    if value.get("isError") is True:
        return _error_text(_failure(value, text), max_bytes), True
    return cut_text(text, max_bytes), False


def cut_text(text: str, max_bytes: int) -> str:
    """`text`, or as much of its start as fits with a note of how much it was. Never half a character."""
    data = text.encode()
    size = len(data)
    if size <= max_bytes:
        return text
    room = max_bytes - len(_CUT.format(kept=size, size=size).encode())
    kept = data[: max(room, 0)].decode(errors="ignore")
    note = _CUT.format(kept=len(kept.encode()), size=size)
    return (kept + note).encode()[:max_bytes].decode(errors="ignore")


def error_text(error: CallError) -> str:
    """What a model is told of a call without a result."""
    return _encode(error.detail).decode()


def _error_text(error: CallError, max_bytes: int) -> str:
    """As JSON that stays JSON when it is cut: what is shortened is the message."""
    text = error_text(error)
    room = len(error.message.encode())
    while len(text.encode()) > max_bytes and room:
        # How much of the message goes into how much JSON depends on its escapes: nearer with every try.
        room = min(room - 1, room * max_bytes // len(text.encode()))
        text = error_text(replace(error, message=cut_text(error.message, room)))
    return text


def _failure(value: dict[str, Any], text: str) -> CallError:
    """Why it failed: what the gateway itself says where it made the result, and else what the tool says."""
    match value.get("_meta"):
        case {"toolgate/error": {"code": str(code), "retryable": bool(retryable)}} if code in WIRE:
            return CallError(code=code, message=text, retryable=retryable)
    return CallError(code=TOOL_ERROR, message=text, retryable=True)


def _lines(value: dict[str, Any]) -> Iterator[str]:
    content = value.get("content")
    blocks = content if isinstance(content, list) else []
    yield from (_line(block) for block in blocks)
    structured = value.get("structuredContent")
    if structured is not None and not _is_said(structured, blocks):
        yield _encode(structured).decode()


def _line(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, **rest}:
            return f"[{kind}: {_media(rest)}, not shown]"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[resource: {uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": str(uri), **rest}}:
            return f"[resource: {uri}, {_media(rest, data='blob')}, not shown]"
        case {"type": "resource_link", "uri": str(uri), **rest}:
            return f"[resource: {rest.get('name') or uri}, {uri}]"
        case {"type": str(kind)}:
            return f"[{kind}: not shown]"
    return "[unreadable part: not shown]"


def _media(part: Mapping[Any, Any], *, data: str = "data") -> str:
    kind, encoded = part.get("mimeType"), part.get(data)
    size = len(encoded.rstrip("=")) * 3 // 4 if isinstance(encoded, str) else 0
    return f"{kind if isinstance(kind, str) else 'unknown type'}, {size} bytes"


def _is_said(structured: object, blocks: list[Any]) -> bool:
    """Whether the texts say all of `structured`.

    They do as its JSON, and as the official Python SDK writes what is no object: `{"result": …}`, and the
    value itself in text, a list as one text for each of its members.
    """
    said = [_spellings(block["text"]) for block in blocks if _is_text(block)]
    wholes = {_encode_canonical(structured)}
    parts: list[Any] = []
    match structured:
        case {"result": value, **rest} if not rest:
            wholes.add(_encode_canonical(value))
            parts = value if isinstance(value, list) else []
    return any(wholes & one for one in said) or (
        len(parts) == len(said) > 0
        and all(_encode_canonical(part) in one for part, one in zip(parts, said, strict=True))
    )


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and isinstance(block.get("text"), str)


def _spellings(text: str) -> set[bytes]:
    """What a text can be taken for, in bytes: to Python `1` and `true` are one."""
    try:
        return {_encode_canonical(text), _encode_canonical(_decode(text))}
    except UNREADABLE:
        return {_encode_canonical(text)}


def _block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
