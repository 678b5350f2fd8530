"""JSON objects taken apart one level deep: what is only carried stays the JSON it came as."""

from typing import Final

import msgspec

Members = dict[str, msgspec.Raw]
"""The members of an object by their names."""
NULL: Final = msgspec.Raw(b"null")
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON raises. What is only carried is looked at late, part by part, or never."""

decode_members = msgspec.json.Decoder(Members).decode
"""Raises UNREADABLE for bytes that are no JSON object."""
decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Raises UNREADABLE for bytes that are no JSON array."""


def encode_raw(value: object) -> msgspec.Raw:
    """`value` as a member of something that is encoded later."""
    return msgspec.Raw(msgspec.json.encode(value))


def text_of(raw: msgspec.Raw | None) -> str | None:
    """The text that `raw` is, None where it is something else."""
    return msgspec.json.decode(raw, type=str) if raw is not None and _begins(raw, b'"') else None


def object_of(raw: msgspec.Raw | None) -> Members | None:
    """The object that `raw` is, None where it is something else."""
    return decode_members(raw) if raw is not None and _begins(raw, b"{") else None


def array_of(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The entries of the array that `raw` is; none where it is something else."""
    return decode_array(raw) if raw is not None and _begins(raw, b"[") else []


def _begins(raw: msgspec.Raw, sign: bytes) -> bool:
    return memoryview(raw)[:1] == sign  # not as bytes: that would copy all of it
