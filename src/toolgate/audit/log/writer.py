"""The sinks: in memory for tests and embedding, JSON lines for everyone else.

The audit log: events in, numbered and in order, handed to a sink in batches.

Recording never waits: an event becomes a line at once, the line is kept where the end of this process does
not reach it (`ahead`), and lines leave together for the sink, at the latest after `FLUSH_S`. A sink that
fails is reported once, and tried again. Calls go on while there is room for what is held; then none is begun,
because nothing is to run of which nothing is known. How many were not is recorded as soon as it can be.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from toolgate.audit.events import AuditEvent, CallEnded, CallRecorded
from toolgate.audit.log.files import list_files, parse_number, rotate_files
from toolgate.audit.log.lines import (
    GENESIS,
    AuditLine,
    EncodedLines,
    encode_line,
    encode_seal,
    find_last_seal,
    make_seal,
    parse_line,
)
from toolgate.audit.log.write_ahead import LINE_ROOM_BYTES, MemoryWriteAhead, WriteAhead
from toolgate.errors import ServerUnavailable

ROTATE_BYTES: Final = 64 * 1024 * 1024
KEEP_FILES: Final = 10


class MemorySink:
    """Keeps the newest events."""

    def __init__(self, *, keep: int = 10_000) -> None:
        self.events: deque[AuditLine] = deque(maxlen=keep)

    def write(self, lines: EncodedLines) -> None:
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

    def write(self, lines: EncodedLines) -> None:
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
            upto = max(last.upto if last else 0, *map(parse_number, rest))
            seal = make_seal(self._prev, EncodedLines(b"".join(rest), len(rest), upto))
            self._append(fd, encode_seal(seal))
            self._prev = seal.sha256

    def _append(self, fd: int, *texts: bytes | memoryview) -> None:
        written = os.writev(fd, texts)
        if written != sum(map(len, texts)):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            raise OSError(f"short write to {self._path.name}")

    def _rotate(self) -> int:
        self.close()
        rotate_files(self._path, keep=self._keep)
        return self._open()


FLUSH_S: Final = 0.2
FLUSH_BYTES: Final = 128 * 1024
RETRY_S: Final = 1.0
"""How soon a sink that failed is tried again."""
MAX_HELD_BYTES: Final = LINE_ROOM_BYTES
"""Bytes of lines held while a sink fails. What comes after is lost, and counted in the log."""
MAX_BEGIN_BYTES: Final = 4 * 1024 * 1024
"""Held at most where a call may begin: the rest is for what comes of those that have, and for all else."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class AuditSink(Protocol):
    """Where audit events go, as lines: each once, in order."""

    def write(self, lines: EncodedLines) -> None:
        """Take all of `lines`, or raise OSError and take none. Their text is gone after that: copy it."""

    def close(self) -> None:
        """Release what is held. Idempotent."""


def _ignore_written() -> None:
    """For a log that nobody follows."""


class AuditLog:
    """Numbers events and passes them on in batches."""

    def __init__(
        self,
        sink: AuditSink,
        *,
        ahead: WriteAhead | None = None,
        first_sequence: int = 1,
        on_written: Callable[[], None] = _ignore_written,
    ) -> None:
        """`on_written` is told after each batch that the sink took."""
        self._sink = sink
        self._ahead = ahead or MemoryWriteAhead()
        self._keep = self._ahead.append
        self._next = first_sequence
        self._on_written = on_written
        # What is held is in `ahead`: so many lines, so many bytes, the last of this number.
        self._of = self._size = self._upto = 0
        self._begun: dict[int, bytes] = {}
        """Calls that have not ended, in order, with what their ends say as well."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_failing = False
        self._is_closed = False
        self._lost = 0
        self._unsent = 0
        """Calls that were not begun, and since when, as there was no room for their records."""
        self._unsent_since_ms = 0

    @property
    def last_sequence(self) -> int:
        """The number of the newest event."""
        return self._next - 1

    @property
    def is_failing(self) -> bool:
        """The sink takes nothing for now, and events are held."""
        return self._is_failing

    @property
    def is_full(self) -> bool:
        """So much is held that no call is begun."""
        return self._size > MAX_BEGIN_BYTES

    def begin(self, at_ms: int, said: bytes) -> int:
        """Take note of a call that is about to be sent; its number. Raises ServerUnavailable.

        `said`: what its end says as well, see `encode_call_fields`.
        """
        number = self._next
        # Before it is taken, with which all that is held may be handed over: who comes after a process that
        # ends then looks for calls without their end from the oldest of these on.
        self._begun[number] = said
        line = b'{"seq":%d,"type":"start","at_ms":%d,%b\n' % (number, at_ms, said)
        if self._size > MAX_BEGIN_BYTES or not self._take(number, line):
            del self._begun[number]
            raise self._refuse(at_ms)
        return number

    def end(self, event: CallEnded) -> None:
        """Take note of what came of a call that began."""
        # What its start says is not encoded again: that is most of what a record costs.
        number, start = self._next, event.start
        line = b'{"seq":%d,%b,%b\n' % (number, _encode(event)[1:-1], self._begun[start])
        if self._take(number, line):
            del self._begun[start]

    def record(self, event: AuditEvent) -> int:
        """Take note of `event`, safely when this returns; its number. Must be called on the event loop.

        0: it is lost, as nothing could be written for long.
        """
        return self._take(self._next, encode_line(self._next, event))

    def _take(self, number: int, line: bytes) -> int:
        """`line`: an event with its number, which is the next. Gives the number, or 0 where it is lost."""
        size = self._size + len(line)
        if size > MAX_HELD_BYTES:
            return self._count_lost()
        self._keep(line)
        self._upto = number
        self._next = number + 1
        self._of += 1
        self._size = size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._on_timer)
        elif size >= FLUSH_BYTES and not self._is_failing:
            self.flush()
        return number

    def flush(self) -> None:
        """Hand over what is held."""
        if not self._of:
            return
        try:
            with self._ahead.lines() as text:
                self._sink.write(EncodedLines(text, self._of, self._upto))
        except OSError as exc:
            self._on_failure(exc)
            return
        self._of = self._size = 0
        self._ahead.clear(next(iter(self._begun), self._next))
        if self._is_failing:
            self._is_failing = False
            _log.error("the audit log is written again; events lost meanwhile: %d", self._lost)
            self._record_gap()
        self._on_written()

    def resume_after(self, sequence: int) -> None:
        """Number what comes above `sequence`: somebody has that many already, and the file lost some."""
        self._next = max(self._next, sequence + 1)

    def close(self) -> None:
        """Flush and close the sink. What is left to be done is done by the next process. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_timer()
        self.flush()
        self._sink.close()
        self._ahead.close(is_done=not self._of and not self._begun)

    def _on_failure(self, exc: OSError) -> None:
        if not self._is_failing:
            _log.error("the audit log cannot be written, events are held: %s", exc)
        self._is_failing = True
        self._stop_timer()
        if not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, at_ms: int) -> ServerUnavailable:
        if not self._unsent:
            self._unsent_since_ms = at_ms
            _log.error("no call is sent from now on: there is no room for its record")
        self._unsent += 1
        return ServerUnavailable(
            "the audit log cannot be written, and no call is sent without its record",
            hint="free space in the data directory of the gateway; it goes on by itself",
        )

    def _record_gap(self) -> None:
        """What is missing is on record, too."""
        unsent, lost, self._unsent, self._lost = self._unsent, self._lost, 0, 0
        if not unsent and not lost:
            return
        now_ms = int(time.time() * 1e3)
        since_ms = self._unsent_since_ms if unsent else now_ms
        self.record(
            CallRecorded(
                at_ms=now_ms,
                door="",
                principal="",
                tool="",
                outcome="denied",
                code=ServerUnavailable.code,
                layer="audit",
                rule=f"{unsent} calls were not sent, {lost} events are lost",
                duration_us=max(0, now_ms - since_ms) * 1_000,
            )
        )
        self.flush()  # whoever closes the log does not come again

    def _count_lost(self) -> int:
        if not self._lost:
            _log.error("audit events are lost from now on: too many are held")
        self._lost += 1
        return 0
