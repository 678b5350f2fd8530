"""Faults of a chat request in the words of the OpenAI API: its clients look for them.

Also how parts of a request are taken apart, since it is here that what they should have been is said.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from toolgate.errors import InvalidChat
from toolgate.model.json_text import NULL, UNREADABLE, Members

MAX_QUOTED: Final = 80
"""Characters of what a caller sent that are said back to it."""
_KINDS: Final = {
    '"': "a string",
    "{": "an object",
    "[": "an array",
    "t": "a boolean",
    "f": "a boolean",
    "n": "null",
}

_Part = TypeVar("_Part")


def missing_param(param: str) -> InvalidChat:
    return InvalidChat(f"Missing required parameter: '{param}'.", param=param)


def wrong_type(param: str, expected: str, raw: msgspec.Raw) -> InvalidChat:
    return InvalidChat(
        f"Invalid type for '{param}': expected {expected}, but got {describe_kind(raw)} instead.", param=param
    )


def unsupported_value(param: str, value: str, supported: Sequence[str]) -> InvalidChat:
    *most, last = (f"'{one}'" for one in supported)
    values = f"{', '.join(most)}{',' if len(most) > 1 else ''} and {last}" if most else last
    return InvalidChat(f"Invalid value: '{quote(value)}'. Supported values are: {values}.", param=param)


def quote(text: str) -> str:
    """`text` as it may stand in a message: of bounded length and without control characters."""
    return ascii(text[:MAX_QUOTED])[1:-1]


def describe_kind(raw: msgspec.Raw) -> str:
    """What JSON value `raw` is."""
    return _KINDS.get(chr(bytes(raw)[0]), "a number")


def get_member(members: Members, name: str) -> msgspec.Raw | None:
    """A member; None where it is absent or null, which is the same to the OpenAI API."""
    raw = members.get(name, NULL)
    return None if raw == NULL else raw


def parse_members(raw: msgspec.Raw, param: str) -> Members:
    return _parse(raw, param, expected="an object", kind=Members)


def parse_array(raw: msgspec.Raw, param: str) -> list[msgspec.Raw]:
    return _parse(raw, param, expected="an array of objects", kind=list[msgspec.Raw])


def parse_text(raw: msgspec.Raw, param: str) -> str:
    return _parse(raw, param, expected="a string", kind=str)


def parse_flag(raw: msgspec.Raw, param: str) -> bool:
    return _parse(raw, param, expected="a boolean", kind=bool)


def parse_optional_flag(members: Members, name: str, *, param: str = "") -> bool:
    """A flag that is off where it is not given."""
    raw = get_member(members, name)
    return raw is not None and parse_flag(raw, param or name)


def require_text(members: Members, name: str, within: str) -> str:
    """The text of a member that must be there."""
    param = f"{within}.{name}"
    if name not in members:
        raise missing_param(param)
    return parse_text(members[name], param)


def _parse(raw: msgspec.Raw, param: str, *, expected: str, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as exc:
        raise wrong_type(param, expected, raw) from exc
