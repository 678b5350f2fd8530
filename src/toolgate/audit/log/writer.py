"""The audit log: numbers events and writes them to a sink in batches, in order.

Recording never waits. Each event becomes a line at once, and the write-ahead file keeps the line. Lines go to
the sink together, after at most `FLUSH_S`. If the sink fails, this is logged once, and it is retried. Calls
continue while there is room for held lines. After that no call is sent, because no call runs unrecorded. The
number of unsent calls is recorded as soon as possible.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from toolgate.audit.events import AuditEvent, CallEnded, CallRecorded
from toolgate.audit.log import files
from toolgate.audit.log.write_ahead import LINE_ROOM_BYTES, MappedWriteAhead
from toolgate.errors import ServerUnavailable

ROTATE_BYTES: Final = 64 * 1024 * 1024  # about 100,000 calls
KEEP_FILES: Final = 10  # with `ROTATE_BYTES` about a million calls, in 640 MiB
FLUSH_S: Final = 0.2  # people who follow the file see no delay, and batches are worth a seal
FLUSH_BYTES: Final = 128 * 1024  # a small part of the write-ahead file: the rest is for a failing sink
RETRY_S: Final = 1.0  # how soon to retry a failed sink
MAX_HELD_BYTES: Final = LINE_ROOM_BYTES  # of lines, while a sink fails. Later events are lost, and counted
MAX_BEGIN_BYTES: Final = 4 * 1024 * 1024
"""The held bytes below which a call may begin. The other half is for ends of calls and all other events."""
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class AuditSink(Protocol):
    """Receives audit events as lines: each once, in order."""

    def write(self, lines: files.EncodedLines) -> None:
        """Write all of `lines`, or raise OSError and write none. Copy their text: its memory is reused."""

    def close(self) -> None:
        """Release all resources. Idempotent."""


class JsonLinesSink:
    """One JSON object a line, and a seal after each batch.

    A full file is renamed to `<name>.1`, the previous one to `<name>.2`, and so on, up to `keep` files.
    """

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, keep: int = KEEP_FILES) -> None:
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._fd: int | None = None
        self._prev = files.GENESIS

    def write(self, lines: files.EncodedLines) -> None:
        fd = self._open()
        seal = files.make_seal(self._prev, lines)
        sealed_by = files.encode_seal(seal)
        size = os.lseek(fd, 0, os.SEEK_END)
        if size and size + len(lines.text) + len(sealed_by) > self._rotate_bytes:
            self.close()
            files.rotate_files(self._path, keep=self._keep)
            fd = self._open()
        self._append(fd, lines.text, sealed_by)
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
        """Continue the chain of seals, and seal the lines after the last seal."""
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            self._append(fd, b"\n")  # a crash cut the last line: the next one must not continue it
        seals = filter(None, (files.find_last_seal(file).seal for file in files.list_files(self._path)))
        last = max(seals, key=lambda seal: seal.upto, default=None)
        self._prev = files.GENESIS if last is None else last.sha256
        rest = files.find_last_seal(self._path).rest.splitlines(keepends=True)
        if rest:
            upto = max(last.upto if last else 0, *map(files.parse_number, rest))
            seal = files.make_seal(self._prev, files.join_lines(rest)._replace(upto=upto))
            self._append(fd, files.encode_seal(seal))
            self._prev = seal.sha256

    def _append(self, fd: int, *texts: bytes | memoryview) -> None:
        written = os.writev(fd, texts)
        if written != sum(map(len, texts)):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            raise OSError(f"short write to {self._path.name}")


class AuditLog:
    """Numbers events and writes them in batches. Runs on the event loop."""

    def __init__(
        self,
        sink: AuditSink,
        *,
        ahead: MappedWriteAhead | None = None,
        first_sequence: int = 1,
        on_written: Callable[[], None] = lambda: None,
        retry_s: float = RETRY_S,
    ) -> None:
        """`on_written` is called after each batch that the sink has written."""
        self._sink = sink
        self._ahead = ahead or MappedWriteAhead()
        self._keep = self._ahead.append
        self._next = first_sequence
        self._on_written = on_written
        self._retry_s = retry_s
        # The lines in `ahead`: their count, their bytes, and the number of the last.
        self._of = self._size = self._upto = 0
        self._begun: dict[int, bytes] = {}
        """Calls that have not ended, in order, with the members that their ends repeat."""
        self._timer: asyncio.TimerHandle | None = None
        self.is_failing = False
        """Whether the sink fails, and events are held."""
        self._is_closed = False
        self._lost = 0
        self._unsent = 0
        """The number of calls that were not sent because there was no room for their records, and since
        when."""
        self._unsent_since_ms = 0

    @property
    def last_sequence(self) -> int:
        """The number of the newest event."""
        return self._next - 1

    @property
    def is_full(self) -> bool:
        """Whether so much is held that no call may begin."""
        return self._size > MAX_BEGIN_BYTES

    def begin(self, at_ms: int, fields: bytes) -> int:
        """Record a call before it is sent, and return its number. Raises ServerUnavailable.

        `fields`: the members that its end repeats, by `encode_call_fields`.
        """
        number = self._next
        # Before the line is kept, which may flush: if the process ends then, the next one looks for calls
        # without an end, beginning with the oldest of these.
        self._begun[number] = fields
        line = b'{"seq":%d,"type":"start","at_ms":%d,%b\n' % (number, at_ms, fields)
        if self._size > MAX_BEGIN_BYTES or not self._take(number, line):
            del self._begun[number]
            raise self._refuse(at_ms)
        return number

    def end(self, event: CallEnded) -> None:
        """Record the end of a call that began."""
        # The members of its start are not encoded again: that is most of the cost of a record.
        number, start = self._next, event.start
        line = b'{"seq":%d,%b,%b\n' % (number, _encode(event)[1:-1], self._begun[start])
        if self._take(number, line):
            del self._begun[start]

    def record(self, event: AuditEvent) -> int:
        """Record `event` and return its number: it is safe. 0: it is lost, because the sink failed for too
        long."""
        return self._take(self._next, files.encode_line(self._next, event))

    def _take(self, number: int, line: bytes) -> int:
        """Keep the line of the next number. Returns that number, or 0 if the line is lost."""
        size = self._size + len(line)
        if size > MAX_HELD_BYTES:
            if not self._lost:
                _log.error("audit events are lost from now on: the write-ahead file is full")
            self._lost += 1
            return 0
        self._keep(line)
        self._upto = number
        self._next = number + 1
        self._of += 1
        self._size = size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._on_timer)
        elif size >= FLUSH_BYTES and not self.is_failing:
            self.flush()
        return number

    def flush(self) -> None:
        if not self._of:
            return
        try:
            with self._ahead.lines() as text:
                self._sink.write(files.EncodedLines(text, self._of, self._upto))
        except OSError as exc:
            self._on_failure(exc)
            return
        self._of = self._size = 0
        self._ahead.clear(next(iter(self._begun), self._next))
        if self.is_failing:
            self.is_failing = False
            _log.error("the audit log is writable again; events lost meanwhile: %d", self._lost)
            self._record_gap()
        self._on_written()

    def resume_after(self, sequence: int) -> None:
        """Continue with numbers above `sequence`: a follower has that many, and the file lost some."""
        self._next = max(self._next, sequence + 1)

    def close(self) -> None:
        """Flush and close the sink. The next process recovers the rest. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_timer()
        self.flush()
        self._sink.close()
        self._ahead.close(is_done=not self._of and not self._begun)

    def _on_failure(self, exc: OSError) -> None:
        if not self.is_failing:
            _log.error("cannot write the audit log, holding events: %s", exc)
        self.is_failing = True
        self._stop_timer()
        if not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(self._retry_s, self._on_timer)

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
            _log.error("no calls are sent from now on: there is no room for their audit records")
        self._unsent += 1
        return ServerUnavailable(
            "the audit log cannot be written, so no call is sent",
            hint="free space in the data directory of the gateway; calls then resume automatically",
        )

    def _record_gap(self) -> None:
        """Record the number of unsent calls and lost events."""
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
        self.flush()  # `close` does not flush again
