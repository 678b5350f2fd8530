"""Characters that a server cut in two.

Servers that count in UTF-16 cut a text between the halves of one character, and write each half as an
escape of its own, which is no text to anybody who is strict.
"""

import re
from typing import Final

# Escapes one after another, so that a backslash that is itself escaped begins none.
_ESCAPE: Final = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<cut>(?=\"))?"
    rb"|(?P<low>u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_UNREADABLE: Final = rb"\ufffd"


class Halves:
    """Puts them together over the pieces of one stream."""

    def __init__(self) -> None:
        self._first = b""

    def mend(self, data: bytes) -> bytes:
        """`data`, of which a text's last half waits for the next `data`; any half alone is unreadable."""
        if not self._first and b"\\ud" not in data and b"\\uD" not in data:
            return data
        waiting, self._first = self._first, b""

        def mended(found: re.Match[bytes]) -> bytes:
            nonlocal waiting
            if found["high"] and found["cut"] is not None:
                self._first = found[0]
                return b""
            if found["low"] and waiting and data[found.start() - 1 : found.start()] == b'"':
                first, waiting = waiting, b""
                return first + found[0]
            return _UNREADABLE if found["high"] or found["low"] else found[0]

        return _ESCAPE.sub(mended, data)
