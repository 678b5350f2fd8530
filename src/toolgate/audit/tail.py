"""Reads a log that is being written, by sequence, over its rotation. Only in threads: it blocks."""

import os
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

from toolgate.audit.log.files import number_of, open_after

MOST_LINES: Final = 1_000
CHUNK_BYTES: Final = 512 * 1024
"""Read at a time; and the most that is handed on at a time."""


class Read(NamedTuple):
    """A piece of the log: all there is after one number, up to another."""

    after: int
    upto: int
    """The number of the last line; where there is none, as `after`."""
    lines: list[bytes]
    """Without their ends, in order."""


class LogTail:
    """One reader of the log at `path`. It keeps its place for a read that goes on where the last ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._after = 0
        self._turn = Lock()
        """A thread goes on when whoever waited for it was cancelled, and may meet the next one."""

    def read(self, after: int) -> Read:
        """The next lines with numbers above `after`. Raises OSError."""
        with self._turn:
            return self._read(after)

    def close(self) -> None:
        """Idempotent."""
        with self._turn:
            self._close()

    def _read(self, after: int) -> Read:
        if self._file is None or after != self._after:
            self._seek(after)
        found = self._take(after)
        if not found.lines and self._has_moved():
            self._seek(after)
            found = self._take(after)
        self._after = found.upto
        return found

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _seek(self, after: int) -> None:
        self._close()
        self._file = open_after(self._path, after)

    def _take(self, after: int) -> Read:
        lines: list[bytes] = []
        file, upto = self._file, after
        while file is not None and not lines:
            start = file.tell()
            chunk = file.read(CHUNK_BYTES)
            whole, is_ended, _torn = chunk.rpartition(b"\n")
            if not is_ended:
                file.seek(start)
                break
            used = 0
            for line in whole.split(b"\n"):
                if len(lines) == MOST_LINES:
                    break
                used += len(line) + 1
                # Nearly each is the one that follows, which is quicker to see than which one it is.
                is_next = line.startswith(b'{"seq":%d,' % (upto + 1))
                number = upto + 1 if is_next else number_of(line)
                if number > upto:
                    lines.append(line)
                    upto = number
            file.seek(start + used)
        return Read(after, upto, lines)

    def _has_moved(self) -> bool:
        """Whether the lines to come are in another file than the one that was read to its end.

        Or in this one before that: somebody else, such as logrotate with `copytruncate`, has emptied it.
        """
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return os.fstat(self._file.fileno()).st_ino != now.st_ino or now.st_size < self._file.tell()
