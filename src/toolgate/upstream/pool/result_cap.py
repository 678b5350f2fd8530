"""Cuts a tool result that exceeds its server's cap into a valid result with a note on that. Pure.

Text is cut between characters. Content that is useless in part (base64, resources, structured content) is
left out as a whole, and named. What stays keeps its bytes. The output never exceeds the cap.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from toolgate.errors import OutputTooLarge
from toolgate.model.json_text import Members, decode_members

TRUNCATED_KEY: Final = "toolgate/truncated"
CUT_MARK: Final = "\n[toolgate: cut here]"

_NOTE_BYTES: Final = 320
"""Reserved for the closing note, whose longest wording is shorter."""
_SMALL_BYTES: Final = 64  # ample for `true` and `"input_required"`: MCP has no longer value
_LONGEST_CHARACTER: Final = 12
"""`\\ud83d\\ude00`: the last whole character ends less than this before a cut."""
_LEAST_ROOM: Final = 64
"""With less room, blocks are skipped: a result may have a million tiny ones."""
_MAX_SHOWN: Final = 40  # a choice: enough of a type or media type to recognize it

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode


def cap_result(result: bytes, max_bytes: int) -> bytes:
    """`result` if it fits, else as much of it as fits. Raises OutputTooLarge if no valid cut exists.

    Keeps the smallest of the other members first, in half the room or what `content` leaves; then the blocks
    of `content`, in order. A note at the end of `content` lists what is missing.
    """
    if len(result) <= max_bytes:
        return result
    members = _parse(result, max_bytes)
    try:
        blocks = _decode_list(members.pop("content", b"[]"))
    except msgspec.DecodeError:
        blocks = []
    meta = members.pop("_meta", None)
    small = [name for name in ("isError", "resultType") if 0 < len(members.get(name, b"")) <= _SMALL_BYTES]
    fixed = {name: members.pop(name) for name in small}
    mark: Members = {TRUNCATED_KEY: msgspec.Raw(_encode({"original_bytes": len(result)}))}
    fixed["_meta"] = msgspec.Raw(_encode(mark))
    fixed["content"] = msgspec.Raw(b"[]")
    room = max_bytes - len(_encode(fixed)) - _NOTE_BYTES
    if room < 0:
        raise _too_large(result, max_bytes)

    others = members if meta is None else {**members, "_meta": meta}
    kept = _smallest(others, max(room // 2, room - sum(map(_cost, blocks))))
    room -= sum(_cost_of(name, raw) for name, raw in kept.items())
    fitting, left_out = _fit(blocks, room)
    missing = _describe_missing(others.keys() - kept.keys(), left_out)
    sizes = f"{len(result)} bytes are over the cap of {max_bytes}"
    fitting.append(_text_block(f"[toolgate: truncated: {sizes}{missing}]"))
    if "_meta" in kept:
        fixed["_meta"] = msgspec.Raw(_encode({**decode_members(kept.pop("_meta")), **mark}))
    return _encode({**fixed, **kept, "content": fitting})


def _parse(result: bytes, max_bytes: int) -> Members:
    try:
        result.decode("utf-8")  # what stays raw is never decoded again
        members = decode_members(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _too_large(result, max_bytes) from exc
    # A request for input, or an unknown kind of result, would not be valid after a cut.
    if bytes(members.get("resultType", b'"complete"')) != b'"complete"':
        raise _too_large(result, max_bytes)
    return members


def _cost(raw: msgspec.Raw) -> int:
    return len(raw) + len(",")


def _cost_of(name: str, raw: msgspec.Raw) -> int:
    return len(_encode(name)) + len(":") + _cost(raw)


def _smallest(members: Members, room: int) -> Members:
    """The members that fit into `room`, smallest first, in their original order."""
    chosen = set()
    for name, raw in sorted(members.items(), key=lambda item: len(item[1])):
        room -= _cost_of(name, raw)
        if room < 0:
            break
        chosen.add(name)
    return {name: raw for name, raw in members.items() if name in chosen}


def _fit(blocks: Iterable[msgspec.Raw], room: int) -> tuple[list[msgspec.Raw], int]:
    """The blocks, cut or replaced if necessary, and the number of blocks without room."""
    kept: list[msgspec.Raw] = []
    left_out = 0
    for block in blocks:
        fitting = None
        if room >= _LEAST_ROOM:
            fitting = block if _cost(block) <= room else _shorten(block, room)
        if fitting is None:
            left_out += 1
        else:
            kept.append(fitting)
            room -= _cost(fitting)
    return kept, left_out


def _shorten(block: msgspec.Raw, room: int) -> msgspec.Raw | None:
    """As much of `block` as fits into `room`; None if nothing does."""
    try:
        members = decode_members(block)
    except msgspec.DecodeError:
        members = {}
    shorter: msgspec.Raw | None
    if bytes(members.get("type", b"")) == b'"text"' and bytes(members.get("text", b""))[:1] == b'"':
        shorter = _cut(members, room)
    else:
        kind, media = _read_text(members, "type") or "a block", _read_text(members, "mimeType")
        what = f"{kind} ({media})" if media else kind
        shorter = _text_block(f"[toolgate: left out: {what}, {len(block)} bytes]")
    return shorter if shorter is not None and _cost(shorter) <= room else None


def _cut(members: Members, room: int) -> msgspec.Raw | None:
    frame: Members = {**members, "text": msgspec.Raw(b'""')}
    if len(_encode(frame)) > room // 2:
        frame = {"type": members["type"], "text": msgspec.Raw(b'""')}
    text_room = room - len(_encode(frame)) - len(_encode(CUT_MARK)) - len(",")
    if text_room <= 0:
        return None
    prefix = _prefix(bytes(members["text"])[1:-1], text_room)
    return msgspec.Raw(_encode({**frame, "text": prefix + CUT_MARK}))


def _prefix(escaped: bytes, max_bytes: int) -> str:
    """The longest beginning of a JSON string's content that ends between characters.

    It never grows when it is encoded again: that escapes only what must be escaped.
    """
    for end in range(max_bytes, max(max_bytes - _LONGEST_CHARACTER, 0), -1):
        try:
            return _decode_text(b'"%b"' % escaped[:end])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return ""


def _read_text(members: Members, name: str) -> str:
    try:
        return _decode_text(members[name])[:_MAX_SHOWN]
    except (KeyError, msgspec.DecodeError):
        return ""


def _describe_missing(names: Collection[str], blocks: int) -> str:
    others = [name for name in names if name != "structuredContent"]
    parts = ["structuredContent"] if "structuredContent" in names else []
    parts += [f"{len(others)} other members"] if others else []
    parts += [f"{blocks} blocks"] if blocks else []
    return f"; left out: {', '.join(parts)}" if parts else ""


def _text_block(text: str) -> msgspec.Raw:
    return msgspec.Raw(_encode({"type": "text", "text": text}))


def _too_large(result: bytes, max_bytes: int) -> OutputTooLarge:
    return OutputTooLarge(
        f"the result has {len(result)} bytes, more than {max_bytes}, and cannot be cut into a valid one"
    )
