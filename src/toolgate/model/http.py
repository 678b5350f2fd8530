"""Heads of HTTP messages that were parsed before. Peers repeat themselves, but for the length."""

import re
from typing import Final

_MAX_DIGITS: Final = 8
_LENGTH = re.compile(
    rb"(?<=\r\n)content-length:[ \t]*([0-9]{1,%d})[ \t]*(?=\r\n)" % _MAX_DIGITS, re.IGNORECASE
)


class HeadShape:
    """A head without the digits of its one `Content-Length`.

    Invariant: whatever a parser makes of one head it makes of every other of this shape, but for the length.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    def locate(self, data: bytes) -> tuple[int, int] | None:
        """Where the body begins and how long it is, in a message that begins with a head of this shape."""
        if not data.startswith(self._before):
            return None
        begin = len(self._before)
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        digits = data[begin:end] if end > 0 else b""
        if not (digits.isdigit() and data.startswith(self._after, end)):
            return None
        return end + len(self._after), int(digits)


def shape_of(head: bytes) -> HeadShape | None:
    """The shape of a whole head, the empty line included; None where it has no plain length."""
    length = _LENGTH.search(head)
    if length is None or head.lower().count(b"\r\ncontent-length") != 1:
        return None
    return HeadShape(head[: length.start(1)], head[length.end(1) :])
