"""Text from servers, made harmless for a terminal: what could move, hide or reorder it is spelled out.

Tool descriptions, errors and results are written by others. Escape sequences, bidirectional controls
and invisible characters are shown as `\\x1b` or `\\u202e`, never passed on.
"""

from toolgate.model.visible import encode_json, escape

__all__ = ["encode_json", "escape_block", "escape_line"]


def escape_line(text: str) -> str:
    """`text` on one line: line breaks and tabs become spaces, everything else unsafe is spelled out."""
    return escape(" ".join(text.split()), _spell)


def escape_block(text: str) -> str:
    """`text` with its line breaks kept, for logs and error output of servers."""
    return "\n".join(escape(line.expandtabs(4).rstrip(), _spell) for line in text.splitlines())


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
