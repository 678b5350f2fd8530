"""What a model asks for, and what it is told.

What a model reads of a tool's result. A result of a tool is text there; whatever is not is said to be.

Total: servers send all kinds of things, and none of them may cost a conversation.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from toolgate.errors import InvalidArguments, ToolgateError
from toolgate.errors.wires import WIRE
from toolgate.model.json_text import UNREADABLE, Members

CallKind = Literal["function", "other"]
"""`other`: a call of a tool that is no function. It is never run here."""
MAX_ARGUMENT_BYTES: Final = 1_048_576
MAX_ARGUMENT_DEPTH: Final = 64
MAX_ARGUMENT_CONTAINERS: Final = 20_000
"""Objects and arrays: many empty ones take a reader far longer than their size says."""
INVALID_KEY: Final = "__invalid__"
"""Stands in a history before arguments that were no JSON object."""
_MAX_SHOWN: Final = 200
_MAX_NAME: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_CONTAINERS: Final = (dict, list)

_decode_arguments = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call in a model's reply."""

    call_id: str
    """As the model's server gave it, or made up where it gave none or gave it twice."""
    name: str
    arguments: str
    """As the model wrote them: JSON, or not."""
    kind: CallKind = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call has no result, as the model is told: structured, and always with `retryable`."""

    code: str
    message: str
    retryable: bool

    @property
    def detail(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "retryable": self.retryable}}


def call_error(exc: ToolgateError) -> CallError:
    """A failure of ours as a model is told of it."""
    return CallError(code=exc.code, message=f"{exc}. {exc.hint}", retryable=exc.retryable)


def parse_arguments(text: str) -> bytes | CallError:
    """The one JSON object that `text` is, or what the model is told of it.

    Whatever can be read in two ways, or is cut off, is refused: nothing runs with arguments that the model
    did not write.
    """
    if not text.strip():
        return _invalid("they are empty; where there are none, send `{}`")
    try:
        sent = text.encode()
        fault = _find_fault(sent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        fault = f"they are not one whole JSON object ({exc})"
    return _invalid(fault) if fault else sent


def repair_arguments(text: str) -> str:
    """Arguments as they may stand in a history: servers choke on their own model's words that are no JSON."""
    if not isinstance(parse_arguments(text), CallError):
        return text
    if not text.strip():
        return "{}"
    return msgspec.json.encode({INVALID_KEY: text[:_MAX_SHOWN]}).decode()


def repair_name(name: str) -> str:
    """A name of a function as it may stand in a history, whatever a model has called."""
    return _FOREIGN.sub("_", name)[:_MAX_NAME] or "_"


def canonicalize(arguments: bytes) -> bytes:
    """One spelling for all that say the same, so that repeats are seen."""
    return msgspec.json.encode(_decode_arguments(arguments), order="sorted")


def _find_fault(sent: bytes) -> str | None:
    if len(sent) > MAX_ARGUMENT_BYTES:
        return f"they are longer than {MAX_ARGUMENT_BYTES} bytes"
    signs = b"".join(sent.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    if signs.count(b"{") + signs.count(b"[") > MAX_ARGUMENT_CONTAINERS:
        return f"they hold more than {MAX_ARGUMENT_CONTAINERS} objects and arrays"
    value = _decode_arguments(sent)
    if not isinstance(value, dict):
        return "they are no JSON object"
    depth, members = _measure(value)
    if depth > MAX_ARGUMENT_DEPTH:
        return f"they are nested deeper than {MAX_ARGUMENT_DEPTH} levels"
    # Outside of texts a colon stands for each member that was written; of two with one name, one is left.
    return "a name stands twice in one object" if signs.count(b":") > members else None


def _measure(value: dict[str, Any]) -> tuple[int, int]:
    """How deep objects and arrays nest in it, and how many members all its objects have."""
    depth, members = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        members += sum(len(one) for one in level if isinstance(one, dict))
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, _CONTAINERS)
        ]
    return depth, members


def _invalid(reason: str) -> CallError:
    return CallError(
        code=InvalidArguments.code,
        message=f"the arguments cannot be used: {reason}. Nothing was run; call again with one JSON object",
        retryable=True,
    )


TOOL_ERROR: Final = "tool_error"
_CUT: Final = "… [cut: {kept:,} of {size:,} bytes]"
_NOTHING: Final = "[the tool returned nothing]"
_decode = msgspec.json.decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


def render_result(result: Members, *, max_bytes: int) -> tuple[str, bool]:
    """A result of `tools/call` as one text of at most `max_bytes`, and whether the tool failed."""
    try:
        value = {name: _decode(raw) for name, raw in result.items()}
    except UNREADABLE:
        value = {"isError": True, "content": [_block("the result cannot be read")]}
    text = "\n".join(_render_content(value)) or _NOTHING
    if value.get("isError") is True:
        return _fit_error(_parse_failure(value, text), max_bytes), True
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


def render_error(error: CallError) -> str:
    """What a model is told of a call without a result."""
    return _encode(error.detail).decode()


def _fit_error(error: CallError, max_bytes: int) -> str:
    """As JSON that stays JSON when it is cut: what is shortened is the message."""
    text = render_error(error)
    room = len(error.message.encode())
    while len(text.encode()) > max_bytes and room:
        # How much of the message goes into how much JSON depends on its escapes: nearer with every try.
        room = min(room - 1, room * max_bytes // len(text.encode()))
        text = render_error(replace(error, message=cut_text(error.message, room)))
    return text


def _parse_failure(value: dict[str, Any], text: str) -> CallError:
    """Why it failed: what the gateway itself says where it made the result, and else what the tool says."""
    match value.get("_meta"):
        case {"toolgate/error": {"code": str(code), "retryable": bool(retryable)}} if code in WIRE:
            return CallError(code=code, message=text, retryable=retryable)
    return CallError(code=TOOL_ERROR, message=text, retryable=True)


def _render_content(value: dict[str, Any]) -> Iterator[str]:
    content = value.get("content")
    blocks = content if isinstance(content, list) else []
    yield from (_render_block(block) for block in blocks)
    structured = value.get("structuredContent")
    if structured is not None and not _repeats_content(structured, blocks):
        yield _encode(structured).decode()


def _render_block(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, **rest}:
            return f"[{kind}: {_describe_media(rest)}, not shown]"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[resource: {uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": str(uri), **rest}}:
            return f"[resource: {uri}, {_describe_media(rest, data='blob')}, not shown]"
        case {"type": "resource_link", "uri": str(uri), **rest}:
            return f"[resource: {rest.get('name') or uri}, {uri}]"
        case {"type": str(kind)}:
            return f"[{kind}: not shown]"
    return "[unreadable part: not shown]"


def _describe_media(part: Mapping[Any, Any], *, data: str = "data") -> str:
    kind, encoded = part.get("mimeType"), part.get(data)
    size = len(encoded.rstrip("=")) * 3 // 4 if isinstance(encoded, str) else 0
    return f"{kind if isinstance(kind, str) else 'unknown type'}, {size} bytes"


def _repeats_content(structured: object, blocks: list[Any]) -> bool:
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
