"""The write-ahead file of an audit log: it keeps lines for the log even if the process is killed.

Lines are copied into a memory-mapped file, without a system call. Once a line is copied, the kernel has it,
whatever happens to the process (not to the machine). The file has its full size and its blocks from the
start, so a full disk does not affect it. A process that ends normally removes it.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FILE_BYTES: Final = 8 * 1024 * 1024  # about 12,000 calls (see `ROTATE_BYTES`) while the disk is full (ADR 40)
LINE_ROOM_BYTES: Final = FILE_BYTES - 64  # without the head: `_LINES_OFFSET`
_MAGIC: Final = b"TGAHEAD1"
# The magic, the end of the lines, and the number from which calls may lack their end.
_HEAD: Final = struct.Struct("=8sQQ")
_LINES_OFFSET: Final = 64  # a cache line: the head has 24 bytes


class LeftoverLines(NamedTuple):
    """The lines of a process that did not end normally."""

    lines: Sequence[bytes]
    """With their line ends, in order."""
    scan_from: int


class MappedWriteAhead:
    """Keeps lines until the log has them, in a memory-mapped file."""

    def __init__(self, path: Path | None = None, fd: int = -1) -> None:
        """Takes over `fd`. Without a file, lines are lost with the process. Raises OSError if mapping
        fails."""
        self._path = path
        self._map = mmap.mmap(fd, FILE_BYTES)
        if path is not None:
            os.close(fd)
        self._view = memoryview(self._map)
        self._words = self._view[: _HEAD.size].cast("Q")
        self._end = _LINES_OFFSET

    def append(self, line: bytes) -> None:
        """Keep a line: it is safe when this returns. There must be room for it."""
        end = self._end + len(line)
        self._map[self._end : end] = line
        # Invariant: everything before the end is complete. One aligned store: it happens, or it does not.
        self._words[1] = self._end = end

    def lines(self) -> memoryview:
        """All kept lines. Release the view before you call another method."""
        return self._view[_LINES_OFFSET : self._end]

    def clear(self, scan_from: int, /) -> None:
        """Drop the lines: the log has them. Calls that began before `scan_from` have ended."""
        self._words[2] = scan_from
        self._words[1] = self._end = _LINES_OFFSET

    def close(self, *, is_done: bool) -> None:
        """Release the file, and remove it if it is no longer needed. Idempotent."""
        if self._map.closed:
            return
        self._words.release()
        self._view.release()
        self._map.close()
        if is_done and self._path is not None:
            self._path.unlink(missing_ok=True)


class FileWriteAhead(MappedWriteAhead):
    """The same with writes to a file, too, for file systems that cannot map one."""

    def __init__(self, path: Path, fd: int) -> None:
        """Takes over `fd`."""
        super().__init__()
        self._path = path
        self._fd = fd

    def append(self, line: bytes) -> None:
        os.pwrite(self._fd, line, self._end)
        super().append(line)
        self._write_head()

    def clear(self, scan_from: int, /) -> None:
        super().clear(scan_from)
        self._write_head()

    def close(self, *, is_done: bool) -> None:
        if not self._map.closed:
            os.close(self._fd)
        super().close(is_done=is_done)

    def _write_head(self) -> None:
        os.pwrite(self._fd, _HEAD.pack(_MAGIC, self._end, self._words[2]), 0)


def open_write_ahead(path: Path, *, scan_from: int) -> MappedWriteAhead:
    """Create an empty file that replaces the one at `path`. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, _HEAD.pack(_MAGIC, _LINES_OFFSET, scan_from), 0)
        os.posix_fallocate(fd, 0, FILE_BYTES)
    except OSError:
        os.close(fd)
        raise
    try:
        return MappedWriteAhead(path, fd)
    except OSError:
        return FileWriteAhead(path, fd)


def read_leftover(path: Path) -> LeftoverLines | None:
    """The lines of a previous process; None if it ended normally or there was none. Raises OSError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    magic, end, scan_from = _HEAD.unpack_from(text) if len(text) >= _HEAD.size else (b"", 0, 0)
    if magic != _MAGIC or not _LINES_OFFSET <= end <= len(text):
        return LeftoverLines((), 0)
    return LeftoverLines(text[_LINES_OFFSET:end].splitlines(keepends=True), scan_from)
