"""Text from servers, made harmless for a terminal: what could move, hide or reorder it is spelled out.

Tool descriptions, errors and results are written by others. Escape sequences, bidirectional controls
and invisible characters are shown as `\\x1b` or `\\u202e`, never passed on.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

# Printable by Unicode's categories, and yet nothing to see: fillers, joiners, variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escape_line(text: str) -> str:
    """`text` on one line: line breaks and tabs become spaces, everything else unsafe is spelled out."""
    return _escape(" ".join(text.split()), _spell)


def escape_block(text: str) -> str:
    """`text` with its line breaks kept, for logs and error output of servers."""
    return "\n".join(_escape(line.expandtabs(4).rstrip(), _spell) for line in text.splitlines())


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON that any program reads and any terminal shows as it is."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent).split("\n")
    return "\n".join(_escape(line, _spell_in_json) for line in lines)


def _escape(text: str, spell: Callable[[str], str]) -> str:
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(one if one.isprintable() and not _INVISIBLE.match(one) else spell(one) for one in text)


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _spell_in_json(character: str) -> str:
    """Outside strings JSON has none of these, and in a string this means the same."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(character)[1:-1]
