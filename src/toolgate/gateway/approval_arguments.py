"""The arguments of a call that a person is to agree to: told apart exactly, and shown without their secrets.

A server gets the bytes that its caller sent. So what could be read in two ways is refused: a name that stands
there twice, or that a server may take for another one, would let one call be approved and another be made.
"""

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import InvalidArguments
from toolgate.gateway.redacting import BUILT_IN, Members, Redaction, parse_members
from toolgate.model.json_text import ambiguous, find_clash

_encode_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Arguments(NamedTuple):
    """What is kept of a call's arguments."""

    digest: str
    """Equal exactly where members and values are, spelled numbers included."""
    shown: bytes
    """One JSON object, for people."""


def parse_arguments(raw: msgspec.Raw | None, redaction: Redaction = BUILT_IN) -> Arguments:
    """Raises InvalidArguments."""
    try:
        members = parse_members(b"{}" if raw is None else bytes(raw), _members)
        canonical = _encode_canonical(members)
        # What can be read may still be nested too deep to be shown.
        shown = redaction.for_people(members, len(canonical))
        return Arguments(hashlib.sha256(canonical).hexdigest(), shown)
    except (ValueError, RecursionError) as exc:
        raise InvalidArguments(f"`arguments` cannot be read: {exc}") from exc


def _members(pairs: list[tuple[str, Any]]) -> Members:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has two members of one name")
    clash = find_clash(members)
    if clash is not None:
        raise ValueError(ambiguous(clash, "an object"))
    return members
