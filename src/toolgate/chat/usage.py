"""What a conversation has used: the numbers of its rounds, added up."""

from math import isfinite
from typing import Any, Final

import msgspec

from toolgate.model.raw import UNREADABLE, Members, decode_members, encode_raw

MAX_DEPTH: Final = 8
"""Real ones have two levels."""

_decode_number = msgspec.json.Decoder(int | float).decode
_NULL: Final = b"null"


class _Used(msgspec.Struct, gc=False):
    total_tokens: int | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: _Used | None = None


class _Event(_Answer, gc=False):
    """A completion, a piece of one, a response, or what ends the events of one."""

    response: _Answer | None = None


class _Piece(msgspec.Struct, gc=False):
    choices: list[msgspec.Raw] | None = None


_decode_piece = msgspec.json.Decoder(_Piece).decode
_decode_options = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def reported_tokens(data: bytes) -> int:
    """How many tokens a model's server says an answer took, or an event of one; 0 where it does not say."""
    if b'"total_tokens"' not in data:
        return 0
    try:
        event = _decode_event(data)
    except UNREADABLE:
        return 0
    used = event.usage or (event.response and event.response.usage)
    return max((used and used.total_tokens) or 0, 0)


def asking_for_usage(body: bytes) -> bytes | None:
    """A request for a streamed chat, with a demand for what it takes. None: that need not be added."""
    try:
        members = decode_members(body)
        options = _decode_options(members.get("stream_options", _NULL)) or {}
    except UNREADABLE:
        return None
    is_streamed = "messages" in members and bytes(members.get("stream", b"")) == b"true"
    if not is_streamed or options.get("include_usage") is True:
        return None
    return msgspec.json.encode({**members, "stream_options": {**options, "include_usage": True}})


def is_usage_alone(data: bytes) -> bool:
    """Whether an event of a chat says what it took, and nothing else."""
    try:
        return bool(reported_tokens(data)) and _decode_piece(data).choices == []
    except UNREADABLE:
        return False


def add_usage(total: Members | None, one: Members | None) -> Members | None:
    """Every number of `one` added to that of `total`, at any level; of all else the later stays."""
    if total is None or one is None:
        return one if total is None else total
    return _added(total, one, MAX_DEPTH)


def _added(total: Members, one: Members, depth: int) -> Members:
    return total | {
        name: _sum(total[name], raw, depth) if name in total else raw for name, raw in one.items()
    }


def _sum(old: msgspec.Raw, new: msgspec.Raw, depth: int) -> msgspec.Raw:
    if bytes(new) == _NULL:
        return old
    if bytes(old)[:1] == bytes(new)[:1] == b"{":
        if depth == 0:
            return new
        return encode_raw(_added(decode_members(old), decode_members(new), depth - 1))
    try:
        total = _decode_number(old) + _decode_number(new)
    except msgspec.DecodeError:
        return new
    return encode_raw(total) if isfinite(total) else new
