"""What every kind of definition a server sends is held to: JSON within bounds, adornments of the right type.

Strict clients refuse a whole list for one member of the wrong type. So what only adorns a definition is left
out when it is wrong, and everything else passes as the server wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolgate.catalog.checks import SchemaRefused, is_deeper_than
from toolgate.model.raw import decode_members

MAX_LISTED: Final = 2_000
"""Tools, prompts, resources or templates of one server."""
MAX_DESCRIPTION_BYTES: Final = 16 * 1024
MAX_DEFINITION_BYTES: Final = 1024 * 1024
"""Both schemas and the description at their limits, and as much again for `_meta` and icons."""
MAX_DEFINITION_DEPTH: Final = 64

_SHOWN_NAME: Final = 80

Members = dict[str, Any]
encode_canonical = msgspec.json.Encoder(order="sorted").encode


class Icon(msgspec.Struct, rename="camel"):
    """As clients of either era take one."""

    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: Literal["dark", "light"] = "light"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A definition that is not offered, and why. `name` is empty where the server gave none."""

    name: str
    reason: str


def parse_members(raw: bytes) -> Members:
    """The members of one definition, or SchemaRefused."""
    if len(raw) > MAX_DEFINITION_BYTES:
        raise SchemaRefused(f"the definition is larger than {MAX_DEFINITION_BYTES} bytes")
    try:
        members = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise SchemaRefused(f"the definition is not valid JSON: {exc}") from exc
    except RecursionError as exc:
        raise SchemaRefused(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}") from exc
    if not isinstance(members, dict):
        raise SchemaRefused("the definition is not an object")
    return members


def keep_fitting(members: Members, types: Mapping[str, Any]) -> Members:
    """`members` without those that are not of their type in `types`; those it does not name stay."""
    return {key: value for key, value in members.items() if key not in types or _fits(value, types[key])}


def check_description(members: Members) -> None:
    """Drops a description that is null; SchemaRefused for one that is too long or no text."""
    if members.get("description", "") is None:
        del members["description"]
    description = members.get("description", "")
    if not isinstance(description, str):
        raise SchemaRefused("its description is not text")
    if len(description.encode()) > MAX_DESCRIPTION_BYTES:
        raise SchemaRefused(f"its description is longer than {MAX_DESCRIPTION_BYTES} bytes")


def check_depth(members: Members) -> None:
    """SchemaRefused for what is nested deeper than clients can be asked to read."""
    if is_deeper_than(members, MAX_DEFINITION_DEPTH):
        raise SchemaRefused(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}")


def respell(raw: bytes, *, sent: Members, members: Members) -> bytes:
    """`raw` itself where nothing was repaired, else anew, with every untouched member as it was written."""
    if sent.keys() == members.keys() and all(members[key] is sent[key] for key in members):
        return raw
    raws = decode_members(raw)
    return msgspec.json.encode(
        {key: raws[key] if value is sent.get(key) else value for key, value in members.items()}
    )


def shown(name: str) -> str:
    """An unusable name, with what cannot be seen escaped, and short."""
    text = ascii(name)[1:-1]
    return text if len(text) <= _SHOWN_NAME else f"{text[:_SHOWN_NAME]}…"


def _fits(value: object, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True
