"""Parses parts of a chat request. Errors have the wording of the OpenAI API, which clients look for."""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from toolgate.errors import InvalidChat
from toolgate.model.json_text import NULL, UNREADABLE, Members

MAX_QUOTED: Final = 80
"""Characters of a client's value that an error quotes."""
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
    found = _KINDS.get(chr(bytes(raw)[0]), "a number")
    return InvalidChat(
        f"Invalid type for '{param}': expected {expected}, but got {found} instead.", param=param
    )


def unsupported_value(param: str, value: str, supported: Sequence[str]) -> InvalidChat:
    *most, last = (f"'{one}'" for one in supported)
    values = f"{', '.join(most)}{',' if len(most) > 1 else ''} and {last}" if most else last
    return InvalidChat(f"Invalid value: '{quote(value)}'. Supported values are: {values}.", param=param)


def quote(text: str) -> str:
    """Shorten `text` for a message, and escape control characters."""
    return ascii(text[:MAX_QUOTED])[1:-1]


def get_member(members: Members, name: str) -> msgspec.Raw | None:
    """A member; None if it is absent or null, which mean the same to the OpenAI API."""
    raw = members.get(name, NULL)
    return None if raw == NULL else raw


def parse_members(raw: msgspec.Raw, param: str) -> Members:
    return _parse(raw, param, expected="an object", kind=Members)


def parse_array(raw: msgspec.Raw, param: str) -> list[msgspec.Raw]:
    return _parse(raw, param, expected="an array of objects", kind=list[msgspec.Raw])


def parse_text(raw: msgspec.Raw, param: str) -> str:
    return _parse(raw, param, expected="a string", kind=str)


def parse_optional_flag(members: Members, name: str, *, param: str = "") -> bool:
    """A flag that is off by default."""
    raw = get_member(members, name)
    return raw is not None and _parse(raw, param or name, expected="a boolean", kind=bool)


def require_text(members: Members, name: str, within: str) -> str:
    """The text of a required member."""
    param = f"{within}.{name}"
    if name not in members:
        raise missing_param(param)
    return parse_text(members[name], param)


def require_members(members: Members, name: str, within: str) -> Members:
    """The object of a required member."""
    param = f"{within}.{name}"
    if name not in members:
        raise missing_param(param)
    return parse_members(members[name], param)


def _parse(raw: msgspec.Raw, param: str, *, expected: str, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as exc:
        raise wrong_type(param, expected, raw) from exc
