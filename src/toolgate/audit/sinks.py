"""The sinks: in memory for tests and embedding, JSON lines for everyone else."""

import os
from collections import deque
from pathlib import Path
from typing import Final

from toolgate.audit.lines import Line, Written, parse_line
from toolgate.audit.log.files import list_files, number_of, shift_files
from toolgate.audit.log.lines import GENESIS, encode_seal, find_last_seal, make_seal

ROTATE_BYTES: Final = 64 * 1024 * 1024
KEEP_FILES: Final = 10


class MemorySink:
    """Keeps the newest events."""

    def __init__(self, *, keep: int = 10_000) -> None:
        self.events: deque[Line] = deque(maxlen=keep)

    def write(self, lines: Written) -> None:
        each = bytes(lines.text).splitlines()
        self.events.extend(line for raw in each if (line := parse_line(raw)) is not None)

    def close(self) -> None:
        """Nothing to release."""


class JsonLinesSink:
    """One JSON object a line, the sequence first, and a seal after each batch.

    A file that is full moves to `<name>.1`, that one to `<name>.2`, and so on, up to `keep` of them.
    """

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, keep: int = KEEP_FILES) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._fd: int | None = None
        self._prev = GENESIS

    def write(self, lines: Written) -> None:
        fd = self._open()
        seal = make_seal(self._prev, lines)
        vouching = encode_seal(seal)
        size = os.lseek(fd, 0, os.SEEK_END)
        if size and size + len(lines.text) + len(vouching) > self._rotate_bytes:
            fd = self._rotate()
        self._append(fd, lines.text, vouching)
        self._prev = seal.sha256

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is None:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                self._resume(fd)
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def _resume(self, fd: int) -> None:
        """Go on with the chain of seals where it ends. What was left without one gets it now."""
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            self._append(fd, b"\n")  # a crash tore the last line: what follows is not part of it
        seals = filter(None, (find_last_seal(file).seal for file in list_files(self._path)))
        last = max(seals, key=lambda seal: seal.upto, default=None)
        self._prev = GENESIS if last is None else last.sha256
        rest = [line + b"\n" for line in find_last_seal(self._path).rest.split(b"\n")[:-1]]
        if rest:
            upto = max(last.upto if last else 0, *map(number_of, rest))
            seal = make_seal(self._prev, Written(b"".join(rest), len(rest), upto))
            self._append(fd, encode_seal(seal))
            self._prev = seal.sha256

    def _append(self, fd: int, *texts: bytes | memoryview) -> None:
        written = os.writev(fd, texts)
        if written != sum(map(len, texts)):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            raise OSError(f"short write to {self._path.name}")

    def _rotate(self) -> int:
        self.close()
        shift_files(self._path, keep=self._keep)
        return self._open()
