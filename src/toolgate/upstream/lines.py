"""A byte stream cut into lines of bounded length. Pure: what does not fit is refused, never kept."""


class LineTooLong(Exception):
    """More bytes without a line end than a line may have."""


class LineSplitter:
    """Takes chunks as they come, gives whole lines without their end."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes. Raises LineTooLong, and then keeps nothing of the line."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if len(chunk) > self._max_bytes and any(len(line) > self._max_bytes for line in lines):
            raise LineTooLong
        if self._parts and lines:
            self._keep(lines[0])
            lines[0] = b"".join(self._parts)
            self._forget()
        if rest:
            self._keep(rest)
        return lines

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            self._forget()
            raise LineTooLong
        self._parts.append(part)

    def _forget(self) -> None:
        self._parts = []
        self._size = 0
