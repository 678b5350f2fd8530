"""What is written ahead: lines on their way to the log, where they survive the end of their process.

They are copied into a file that is mapped into memory: no system call, and once a line is copied the kernel
has it, whatever becomes of the process (not of the machine). The file has its size and its place on the disk
from the start, so that a disk that fills up takes nothing from it. A process that ends well removes it.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

FILE_BYTES: Final = 8 * 1024 * 1024
LINE_ROOM_BYTES: Final = FILE_BYTES - 64
"""Bytes of lines that fit."""

_MAGIC: Final = b"TGAHEAD1"
# What the file is, where its lines end, and the number from which on calls may be without their end.
_HEAD: Final = struct.Struct("=8sQQ")
_LINES_OFFSET: Final = 64
"""Where lines begin."""


class WriteAhead(Protocol):
    """Keeps lines until the log has them."""

    def append(self, line: bytes) -> None:
        """Keep it: it is safe when this returns. There must be room."""

    def lines(self) -> memoryview:
        """All that is kept. To be released before the next of these methods is called."""

    def clear(self, scan_from: int, /) -> None:
        """The log has them all. Calls that began before `scan_from` have ended."""

    def close(self, *, is_done: bool) -> None:
        """Release the file; without a trace, where nothing is left to be done. Idempotent."""


class LeftoverLines(NamedTuple):
    """What a process left behind that did not end well."""

    lines: Sequence[bytes]
    """With their ends, in order."""
    scan_from: int


class MemoryWriteAhead:
    """For a log that is kept in memory alone: what is in it goes with its process."""

    def __init__(self) -> None:
        self._lines = bytearray()

    def append(self, line: bytes) -> None:
        self._lines += line

    def lines(self) -> memoryview:
        return memoryview(bytes(self._lines))

    def clear(self, _scan_from: int, /) -> None:
        self._lines.clear()

    def close(self, *, is_done: bool) -> None:
        """Nothing to release."""


class MappedWriteAhead:
    """In a file that is mapped into memory."""

    def __init__(self, path: Path, fd: int) -> None:
        """`fd` is its own from now on. Raises OSError where the file cannot be mapped."""
        self._path = path
        self._map = mmap.mmap(fd, FILE_BYTES)
        os.close(fd)
        self._view = memoryview(self._map)
        self._words = self._view[: _HEAD.size].cast("Q")
        self._end = _LINES_OFFSET

    def append(self, line: bytes) -> None:
        end = self._end + len(line)
        self._map[self._end : end] = line
        # Invariant: what is before the end is whole. One aligned store: it happens, or it does not.
        self._words[1] = self._end = end

    def lines(self) -> memoryview:
        return self._view[_LINES_OFFSET : self._end]

    def clear(self, scan_from: int, /) -> None:
        self._words[2] = scan_from
        self._words[1] = self._end = _LINES_OFFSET

    def close(self, *, is_done: bool) -> None:
        if self._map.closed:
            return
        self._words.release()
        self._view.release()
        self._map.close()
        if is_done:
            self._path.unlink(missing_ok=True)


class FileWriteAhead:
    """In a file that is written to, where none can be mapped."""

    def __init__(self, path: Path, fd: int) -> None:
        """`fd` is its own from now on."""
        self._path = path
        self._fd = fd
        self._end = _LINES_OFFSET
        self._scan_from = 0

    def append(self, line: bytes) -> None:
        os.pwrite(self._fd, line, self._end)
        self._end += len(line)
        self._write_head()

    def lines(self) -> memoryview:
        return memoryview(os.pread(self._fd, self._end - _LINES_OFFSET, _LINES_OFFSET))

    def clear(self, scan_from: int, /) -> None:
        self._scan_from = scan_from
        self._end = _LINES_OFFSET
        self._write_head()

    def close(self, *, is_done: bool) -> None:
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        if is_done:
            self._path.unlink(missing_ok=True)

    def _write_head(self) -> None:
        os.pwrite(self._fd, _HEAD.pack(_MAGIC, self._end, self._scan_from), 0)


def open_write_ahead(path: Path, *, scan_from: int) -> WriteAhead:
    """An empty one, in place of what is there. Raises OSError."""
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
    """What a process left. None: there was none, or it ended well. Raises OSError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(text) < _HEAD.size:
        return LeftoverLines((), 0)
    magic, end, scan_from = _HEAD.unpack_from(text)
    if magic != _MAGIC or not _LINES_OFFSET <= end <= len(text):
        return LeftoverLines((), 0)
    return LeftoverLines(text[_LINES_OFFSET:end].splitlines(keepends=True), scan_from)
