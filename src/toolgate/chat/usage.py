"""What a conversation has used: the numbers of its rounds, added up."""

from math import isfinite
from typing import Final

import msgspec

from toolgate.model.raw import Members, decode_members, encode_raw

MAX_DEPTH: Final = 8
"""Real ones have two levels."""

_decode_number = msgspec.json.Decoder(int | float).decode
_NULL: Final = b"null"


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
