"""A byte stream cut into lines of bounded length. Pure: what does not fit is refused, never kept."""


class LineTooLong(Exception):
    """More bytes without a line end than a line may have."""


class LineSplitter:
    """Takes chunks as they come, gives whole lines without their end.

    The beginning of a line is kept in one buffer that grows: a list of pieces would cost 8 bytes for each
    byte of a child that writes one at a time. The buffer itself becomes the line, and is not used again.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> list[bytes | bytearray]:
        """The lines that `chunk` completes. Raises LineTooLong, and then keeps nothing of the line."""
        lines: list[bytes | bytearray] = chunk.split(b"\n")  # type: ignore[assignment]
        rest = lines.pop()
        if len(chunk) > self._max_bytes and any(len(line) > self._max_bytes for line in lines):
            raise LineTooLong
        if self._begun and lines:
            self._keep(lines[0])
            lines[0], self._begun = self._begun, bytearray()
        if rest:
            self._keep(rest)
        return lines

    def _keep(self, part: bytes | bytearray) -> None:
        if len(self._begun) + len(part) > self._max_bytes:
            self._begun = bytearray()
            raise LineTooLong
        self._begun += part
