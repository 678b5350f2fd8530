"""The sinks: in memory for tests and embedding, JSON lines for everyone else."""

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from toolgate.audit.events import AuditEvent

ROTATE_BYTES: Final = 64 * 1024 * 1024


class MemorySink:
    """Keeps the newest events."""

    def __init__(self, *, keep: int = 10_000) -> None:
        self.events: deque[tuple[int, AuditEvent]] = deque(maxlen=keep)

    def write(self, events: Sequence[tuple[int, AuditEvent]]) -> None:
        self.events.extend(events)

    def close(self) -> None:
        """Nothing to release."""


class JsonLinesSink:
    """One JSON object a line, the sequence first. At `rotate_bytes` the file moves to `<name>.1`."""

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._fd: int | None = None
        self._encoder = msgspec.json.Encoder()

    def write(self, events: Sequence[tuple[int, AuditEvent]]) -> None:
        encode = self._encoder.encode
        lines = b"".join([b'{"seq":%d,%b\n' % (number, encode(event)[1:]) for number, event in events])
        fd = self._open()
        if os.fstat(fd).st_size + len(lines) > self._rotate_bytes:
            fd = self._rotate()
        start = os.fstat(fd).st_size
        if os.write(fd, lines) != len(lines):
            os.ftruncate(fd, start)
            raise OSError(f"short write to {self._path.name}")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._fd

    def _rotate(self) -> int:
        self.close()
        if self._path.exists():
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        return self._open()


def last_sequence(path: Path) -> int:
    """The newest sequence number in a JSON lines file, or 0: where a restarted log goes on."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64 * 1024))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            return int(msgspec.json.decode(line)["seq"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue
    return 0
