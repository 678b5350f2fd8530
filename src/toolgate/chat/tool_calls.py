"""The tool calls of a model, and their results as text for it.

Images, audio and other content become a description. Servers send all kinds of content: nothing here fails.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from toolgate.errors import WIRE, InvalidArguments, ToolgateError
from toolgate.model.json_text import UNREADABLE, Members, encode_canonical

CallKind = Literal["function", "other"]
"""`other`: a call of a tool that is not a function. The gateway never runs it."""
MAX_ARGUMENT_BYTES: Final = 1_048_576  # a quarter of the largest body of an MCP request
MAX_ARGUMENT_DEPTH: Final = 64  # the depth of JSON that the gateway accepts from clients
MAX_ARGUMENT_CONTAINERS: Final = 20_000
"""Objects and arrays: a parser needs far longer for many empty ones than their size suggests."""
INVALID_KEY: Final = "__invalid__"
"""The member of a history that holds arguments which were not a JSON object."""
TOOL_ERROR: Final = "tool_error"
_MAX_SHOWN: Final = 200  # enough for the model to recognise what it wrote
_MAX_NAME: Final = 64  # of a function: the limit of OpenAI, which most servers share
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_CUT: Final = "… [cut: {kept:,} of {size:,} bytes]"

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    call_id: str
    """The id of the model's server, or a generated one if it sent none or a duplicate."""
    name: str
    arguments: str
    """As the model wrote them: JSON, or not."""
    kind: CallKind = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """The error of a call, for the model: structured, and always with `retryable`."""

    code: str
    message: str
    retryable: bool

    @property
    def detail(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "retryable": self.retryable}}


def describe_error(exc: ToolgateError) -> CallError:
    return CallError(code=exc.code, message=f"{exc}. {exc.hint}", retryable=exc.retryable)


def parse_arguments(text: str) -> bytes | CallError:
    """Check that `text` is exactly one JSON object. Ambiguous or truncated arguments are an error: no tool
    runs with arguments that the model did not write."""
    if not text.strip():
        fault: str | None = "they are empty; without arguments, send `{}`"
    else:
        try:
            sent = text.encode()
            fault = _find_fault(sent)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            fault = f"they are not one complete JSON object ({exc})"
    if fault is None:
        return sent
    message = f"the arguments cannot be used: {fault}. Nothing was run; call again with one JSON object"
    return CallError(code=InvalidArguments.code, message=message, retryable=True)


def repair_arguments(text: str) -> str:
    """Make arguments fit for a history: servers reject their own model's arguments if they are not JSON."""
    if not isinstance(parse_arguments(text), CallError):
        return text
    return _encode({INVALID_KEY: text[:_MAX_SHOWN]}).decode() if text.strip() else "{}"


def repair_name(name: str) -> str:
    """Make a valid function name for a history from any name that a model called."""
    return _FOREIGN.sub("_", name)[:_MAX_NAME] or "_"


def canonicalize(arguments: bytes) -> bytes:
    """Encode equal arguments equally, to recognise repeated calls."""
    return encode_canonical(_decode(arguments))


def _find_fault(sent: bytes) -> str | None:
    if len(sent) > MAX_ARGUMENT_BYTES:
        return f"they are longer than {MAX_ARGUMENT_BYTES} bytes"
    # Remove escapes and strings: the rest is the structure.
    signs = b"".join(sent.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    if signs.count(b"{") + signs.count(b"[") > MAX_ARGUMENT_CONTAINERS:
        return f"they hold more than {MAX_ARGUMENT_CONTAINERS} objects and arrays"
    value = _decode(sent)
    if not isinstance(value, dict):
        return "they are not a JSON object"
    depth, members = _measure(value)
    if depth > MAX_ARGUMENT_DEPTH:
        return f"they are nested deeper than {MAX_ARGUMENT_DEPTH} levels"
    # Each written member has a colon, but the parser keeps only one of two with the same name.
    return "duplicate name in an object" if signs.count(b":") > members else None


def _measure(value: dict[str, Any]) -> tuple[int, int]:
    """Measure the depth of `value`, and count the members of all its objects."""
    depth, members = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        members += sum(len(one) for one in level if isinstance(one, dict))
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
    return depth, members


# Results as text


def render_result(result: Members, *, max_bytes: int) -> tuple[str, bool]:
    """Render a result of `tools/call` as text of at most `max_bytes`, and return whether the tool failed."""
    try:
        value = {name: _decode(raw) for name, raw in result.items()}
    except UNREADABLE:
        value = {"isError": True, "content": [{"type": "text", "text": "the result cannot be read"}]}
    text = "\n".join(_render_content(value)) or "[the tool returned nothing]"
    if value.get("isError") is not True:
        return cut_text(text, max_bytes), False
    error = CallError(code=TOOL_ERROR, message=text, retryable=True)
    match value.get("_meta"):
        case {"toolgate/error": {"code": str(code), "retryable": bool(retryable)}} if code in WIRE:
            error = CallError(code=code, message=text, retryable=retryable)  # the gateway made the result
    return _fit_error(error, max_bytes), True


def cut_text(text: str, max_bytes: int) -> str:
    """Cut `text` to `max_bytes` with a note of its size. Never splits a character."""
    data = text.encode()
    size = len(data)
    if size <= max_bytes:
        return text
    room = max_bytes - len(_CUT.format(kept=size, size=size).encode())
    kept = data[: max(room, 0)].decode(errors="ignore")
    note = _CUT.format(kept=len(kept.encode()), size=size)
    return (kept + note).encode()[:max_bytes].decode(errors="ignore")


def render_error(error: CallError) -> str:
    return _encode(error.detail).decode()


def _fit_error(error: CallError, max_bytes: int) -> str:
    """Shorten the message only, so that the JSON stays valid."""
    text = render_error(error)
    room = len(error.message.encode())
    while len(text.encode()) > max_bytes and room:
        # How much of the message fits depends on its escapes: approach the limit step by step.
        room = min(room - 1, room * max_bytes // len(text.encode()))
        text = render_error(replace(error, message=cut_text(error.message, room)))
    return text


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
    """Whether the text blocks already hold all of `structured`.

    Servers repeat it as JSON. The official Python SDK wraps values other than objects as `{"result": …}` and
    writes the plain value as text: a list as one text per entry.
    """
    texts = [
        _spellings(block["text"])
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    wholes = {encode_canonical(structured)}
    parts: list[Any] = []
    match structured:
        case {"result": value, **rest} if not rest:
            wholes.add(encode_canonical(value))
            parts = value if isinstance(value, list) else []
    return any(wholes & one for one in texts) or (
        len(parts) == len(texts) > 0
        and all(encode_canonical(part) in one for part, one in zip(parts, texts, strict=True))
    )


def _spellings(text: str) -> set[bytes]:
    """The JSON values that a text may represent, as bytes: to Python `1` and `true` are equal."""
    try:
        return {encode_canonical(text), encode_canonical(_decode(text))}
    except UNREADABLE:
        return {encode_canonical(text)}
