"""JSON objects taken apart one level deep: what is only carried stays the JSON it came as."""

import msgspec

Members = dict[str, msgspec.Raw]
"""The members of an object by their names."""
decode_members = msgspec.json.Decoder(Members).decode
"""Raises msgspec.DecodeError and UnicodeDecodeError for bytes that are no JSON object."""
