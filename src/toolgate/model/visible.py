"""Text of strangers as it can be looked at: what could move, hide or reorder it is spelled out."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

# Printable by Unicode's categories, and yet nothing to see: fillers, joiners, variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escape(text: str, spell: Callable[[str], str]) -> str:
    """`text` with every character that cannot be seen as `spell` writes it."""
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(one if one.isprintable() and not _INVISIBLE.match(one) else spell(one) for one in text)


def encode_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """`value` as JSON that any program reads and any terminal shows as it is."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort_keys).split("\n")
    return "\n".join(escape(line, _spell_in_json) for line in lines)


def show_json(raw: bytes) -> str:
    """JSON as it is spelled, over several lines, and with nothing in it that cannot be seen."""
    lines = msgspec.json.format(raw, indent=2).decode().split("\n")
    return "\n".join(escape(line, _spell_in_json) for line in lines)


def _spell_in_json(character: str) -> str:
    """Outside strings JSON has none of these, and in a string this means the same."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(character)[1:-1]
