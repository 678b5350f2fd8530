"""The node's ends of a child's pipes: reading without blocking, writing without blocking, everything bounded.

Plain descriptors under `add_reader` and `add_writer`, not transports: uvloop's pipe transports close their
descriptor twice, and the second close may hit one that another thread has opened in between.
"""

import asyncio
import fcntl
import os
import stat
import struct
import termios
from collections.abc import Callable
from typing import Final

CHUNK_BYTES: Final = 65536
"""One read per loop iteration, at most what a pipe holds: a flood cannot starve the other servers."""
MAX_PENDING_BYTES: Final = 1024 * 1024
"""Writers wait while more than this is unread, so this plus one message is the most that is ever kept."""


class LineTooLong(Exception):
    """More bytes without a line end than a line may have."""


class LineSplitter:
    """Cuts a byte stream into lines of bounded length. Pure.

    The beginning of a line is kept in one buffer that grows: a list of pieces would cost 8 bytes for each
    byte of a child that writes one at a time. The buffer itself becomes the line and is not reused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> list[bytes | bytearray]:
        """The lines that `chunk` completes, without their ends. Raises LineTooLong, and drops the line."""
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


class PipeReader:
    """Reads a descriptor, which it owns, until its end or `close`."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        os.set_blocking(fd, False)
        # uvloop reports a socket's error (a peer that closed with our bytes unread) once and then stops
        # watching, so what came before it must be read in the same iteration. A pipe's read end has no
        # errors.
        is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
        self._loop.add_reader(fd, self._read_all if is_socket else self._read)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        """Read one chunk; returns whether there may be more."""
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self.close()
            self._on_end()
        return self._fd >= 0

    def _read_all(self) -> None:
        while self._read():
            pass


class PipeWriter:
    """Writes to a descriptor, which it owns, as fast as the other side reads."""

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._on_broken = on_broken
        self._pending = bytearray()
        self._is_used = False
        self._left_unread = 0
        self.has_room = asyncio.Event()
        """Whether to write now. Also set on close, so that no writer waits forever."""
        self.has_room.set()
        os.set_blocking(fd, False)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def was_read(self) -> bool:
        """Whether the other side has read all that was sent, or had read it when this end was closed."""
        return self._is_used and not (self._left_unread if self._fd < 0 else self._count_unread())

    def _count_unread(self) -> int:
        in_pipe: int = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, b"\0" * 4))[0]
        return in_pipe + len(self._pending)

    def write(self, data: bytes) -> None:
        """Send `data`, or keep it until the other side reads. Does nothing once closed."""
        if self._fd < 0:
            return
        self._is_used = True
        if not self._pending:
            sent = self._send(data)
            if sent == len(data):
                return
            data = data[sent:]
            if self._fd < 0:
                self._left_unread += len(data)
                return
            self._loop.add_writer(self._fd, self._flush)
        self._pending += data
        if len(self._pending) > MAX_PENDING_BYTES:
            self.has_room.clear()

    def close(self) -> None:
        if self._fd >= 0:
            self._left_unread = self._count_unread()
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._pending.clear()
            self.has_room.set()

    def _flush(self) -> None:
        sent = self._send(self._pending[:CHUNK_BYTES])
        if self._fd < 0:
            return
        del self._pending[:sent]
        if not self._pending:
            self._loop.remove_writer(self._fd)
        if len(self._pending) <= MAX_PENDING_BYTES:
            self.has_room.set()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            self._on_broken()
            return 0
