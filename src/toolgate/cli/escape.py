"""Text from servers, made harmless for a terminal: what could move, hide or reorder it is spelled out.

Tool descriptions, errors and results are written by others. Escape sequences, bidirectional controls
and invisible characters are shown as `\\x1b` or `\\u202e`, never passed on (XSS-3).
"""

import json
import re
from typing import Any, Final

# Printable by Unicode's categories, and yet nothing to see: fillers, joiners, variation selectors.
_INVISIBLE: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_INVISIBLE_CHARACTER: Final = re.compile(f"[{_INVISIBLE}]")
# All that JSON leaves as it is and a terminal may act on. Inside JSON they can only stand in strings.
_UNSAFE_IN_JSON: Final = re.compile(
    f"[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    f"\ud800-\udfff\U000e0000-\U000e007f{_INVISIBLE}]"
)


def escape_line(text: str) -> str:
    """`text` on one line: line breaks and tabs become spaces, everything else unsafe is spelled out."""
    return _escape(" ".join(text.split()))


def escape_block(text: str) -> str:
    """`text` with its line breaks kept, for logs and error output of servers."""
    return "\n".join(_escape(line.expandtabs(4).rstrip()) for line in text.splitlines())


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON that any program reads and any terminal shows as it is."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(text: str) -> str:
    if text.isprintable() and not _INVISIBLE_CHARACTER.search(text):
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable() and not _INVISIBLE_CHARACTER.match(character):
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
