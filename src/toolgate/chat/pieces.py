"""JSON that comes in pieces: texts are joined, objects merged, lists made longer, all else is replaced.

What came once stays the JSON it came as. What it takes grows with what came, not with how often: a text
of a million pieces is joined once, at the end.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from toolgate.model.raw import NULL, Members, decode_array, decode_members, encode_raw

MAX_DEPTH: Final = 16
"""Below this level what comes later replaces what was there; real deltas have four."""

_LABELS: Final = frozenset({"id", "type", "role", "format"})
"""Said whole or not at all, and by some servers with every piece."""
_EMPTY: Final = msgspec.Raw(b'""')


@dataclass(slots=True)
class _Text:
    parts: list[str]


@dataclass(slots=True)
class _Array:
    entries: "list[Grown]" = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Where the entry stands that calls itself the n-th."""


@dataclass(slots=True)
class _Object:
    members: "dict[str, Grown]"


Grown: TypeAlias = msgspec.Raw | _Text | _Array | _Object
"""A value, as far as it has come."""


class _Placed(msgspec.Struct):
    index: int | None = None


def grow(members: dict[str, Grown], pieces: Members, *, depth: int = MAX_DEPTH) -> None:
    """Add `pieces` to `members`."""
    for name, piece in pieces.items():
        old = members.get(name, NULL)
        if old == NULL:
            members[name] = piece
        elif piece != NULL and (name not in _LABELS or old == _EMPTY):
            members[name] = _grown(old, piece, depth=depth, is_name=name == "name")


def whole(members: dict[str, Grown]) -> Members:
    """What has come, as JSON."""
    return {name: _raw(grown) for name, grown in members.items()}


def _grown(old: Grown, piece: msgspec.Raw, *, depth: int, is_name: bool = False) -> Grown:
    opened = _opened(old, depth=depth) if depth else piece
    match opened, bytes(piece)[:1]:
        case _Text(parts), b'"':
            text = msgspec.json.decode(piece, type=str)
            # Never cut up, but by some servers said with every piece.
            if not (is_name and parts == [text]):
                parts.append(text)
        case _Object(members), b"{":
            grow(members, decode_members(piece), depth=depth - 1)
        case _Array() as array, b"[":
            _lengthen(array, piece, depth=depth - 1)
        case _:
            return piece
    return opened


def _lengthen(array: _Array, piece: msgspec.Raw, *, depth: int) -> None:
    for entry in decode_array(piece):
        index = _index(entry)
        if index in array.places:
            place = array.places[index]
            array.entries[place] = _grown(array.entries[place], entry, depth=depth)
            continue
        if index is not None:
            array.places[index] = len(array.entries)
        array.entries.append(entry)


def _index(entry: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(entry, type=_Placed).index
    except msgspec.ValidationError:
        return None


def _opened(grown: Grown, *, depth: int) -> Grown:
    if not isinstance(grown, msgspec.Raw):
        return grown
    match bytes(grown)[:1]:
        case b'"':
            return _Text([msgspec.json.decode(grown, type=str)])
        case b"{":
            return _Object(dict(decode_members(grown)))
        case b"[":
            array = _Array()
            _lengthen(array, grown, depth=depth - 1)
            return array
        case _:
            return grown


def _raw(grown: Grown) -> msgspec.Raw:
    match grown:
        case _Text(parts):
            return encode_raw("".join(parts))
        case _Object(members):
            return encode_raw(whole(members))
        case _Array(entries):
            return encode_raw([_raw(entry) for entry in entries])
        case _:
            return grown
