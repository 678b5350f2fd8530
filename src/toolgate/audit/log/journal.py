"""The audit log of one process: its files, its name, its recovery at the start, and its followers.

If a process did not end normally, the next one adds the lines of the write-ahead file to the log, and ends
the open calls with `unknown`. An interrupted recovery loses nothing and does nothing twice: the write-ahead
file stays until the log has its lines.

A follower is kept up to date with the log: the index of this process, or a remote control plane. It reads the
files, not the memory of the writer. So a backlog costs nothing and a crash loses nothing: the follower knows
the number of its last line and reads the rest again. A gap occurs only if files were rotated away meanwhile,
and it is logged. Calls have priority: delivering an event costs more than writing it, so a busy process
delivers slowly, unless the backlog is so large that rotation might remove it.
"""

import asyncio
import logging
import os
import random
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from toolgate.audit.events import CallRecorded, CallStarted
from toolgate.audit.log import files
from toolgate.audit.log.files import LogChunk, LogTail
from toolgate.audit.log.write_ahead import LeftoverLines, open_write_ahead, read_leftover
from toolgate.audit.log.writer import KEEP_FILES, ROTATE_BYTES, AuditLog, AuditSink, JsonLinesSink
from toolgate.errors import StorageUnavailable, ToolgateError

GATEWAY_ENDED: Final = "gateway_ended"  # the code of calls in flight when their process ended
NAME_CHARS: Final = 32  # 16 random bytes, as many as in a UUID
BUSY_SHARE: Final = 0.6  # of a processor. A process above it has no time for background work
FOLLOW_SHARE: Final = 0.04  # of the time, for deliveries of a busy process
MAX_PAUSE_S: Final = 2.0  # the longest delay of events for people who watch the audit log
FIRST_DELAY_S: Final = 0.2  # enough for a lock or a dropped connection
MAX_DELAY_S: Final = 10.0  # the longest wait of a node that has lost its control plane, too
MANY_LINES: Final = 100  # a tenth of a chunk
GATHER_S: Final = 0.5
"""The wait for more lines after a batch: one delivery costs nearly the same whatever its size."""
EMPTY_CHUNK: Final = LogChunk(0, 0, [])  # requests the follower's number
FINISH_TIMEOUT_S: Final = 2.0  # for the last lines of a process that ends
Deliver = Callable[[LogChunk], Awaitable[int]]
"""Delivers a piece of the log. Returns the number up to which the follower has the log."""
_KIND: Final = re.compile(rb'\{"seq":[0-9]{1,16},"type":"(start|call)"')
_END_BYTES: Final = 256 * 1024  # of the newest lines: every start can afford to read that much
_LINE_BYTES: Final = 600  # the usual size of a line
_log = logging.getLogger(__name__)


class _CallEnd(msgspec.Struct):
    start: int = 0


_decode_start = msgspec.json.Decoder(CallStarted, strict=False).decode
_decode_ended = msgspec.json.Decoder(_CallEnd).decode


def recover_log(path: Path, ahead: Path, sink: AuditSink) -> None:
    """Write the content of `ahead` to the log at `path`. Raises OSError."""
    left = read_leftover(ahead)
    if left is None:
        # It ended normally. Or the file was removed: then the log has calls without an end.
        last, lines, begun = files.last_sequence(path), [], find_open_starts(_read_end(path))
    else:
        _truncate_torn_line(path, left)
        last = files.last_sequence(path)
        lines = [line for line in left.lines if files.parse_number(line) > last]
        begun = find_open_starts([*_read_from(path, left.scan_from), *lines])
    upto = max([last, *map(files.parse_number, lines)])
    for number, (begun_as, start) in enumerate(begun.items(), start=upto + 1):
        same = msgspec.structs.asdict(start)
        end = CallRecorded(**same, outcome="unknown", code=GATEWAY_ENDED, start=begun_as)
        lines.append(files.encode_line(number, end))
    if lines:
        sink.write(files.join_lines(lines))
        _log.warning(
            "the previous process ended unexpectedly: recovered %d audit lines, "
            "and ended %d calls with an unknown outcome",
            len(lines) - len(begun),
            len(begun),
        )


def find_open_starts(lines: Iterable[bytes]) -> Mapping[int, CallStarted]:
    begun: dict[int, CallStarted] = {}
    for line in lines:
        kind = _KIND.match(line)
        try:
            if kind is not None and kind[1] == b"start":
                begun[files.parse_number(line)] = _decode_start(line)
            elif kind is not None and kind[1] == b"call":
                begun.pop(_decode_ended(line).start, None)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # damaged: `verify` reports it
    return begun


def _truncate_torn_line(path: Path, left: LeftoverLines) -> None:
    """Drop an incomplete last line if the complete line is known."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64 * 1024))
        torn = file.read().rpartition(b"\n")[2]
        seal = b'{"seq":%d,"type":"seal"' % (files.parse_number(left.lines[-1]) if left.lines else 0)
        is_known = any(line.startswith(torn) for line in left.lines)
        if torn and (is_known or seal.startswith(torn) or torn.startswith(seal)):
            file.truncate(size - len(torn))


def _read_end(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END_BYTES))
            yield from file.read().split(b"\n")
    except FileNotFoundError:
        return


def _read_from(path: Path, scan_from: int) -> Iterator[bytes]:
    after = max(0, scan_from - 1)
    with closing(LogTail(path)) as tail:
        while lines := (read := tail.read(after)).lines:
            yield from lines
            after = read.upto


class Journal:
    """A log in files, and the state of its followers."""

    def __init__(self, path: Path, *, rotate_bytes: int = ROTATE_BYTES, keep: int = KEEP_FILES) -> None:
        """Continue the log at `path`, or begin one. Raises OSError."""
        self.path = path
        self.name = (read_name(path) if files.last_sequence(path) else None) or _make_name(path)
        """A new log gets a new name, so that a number in it never means two events."""
        self.kept_lines = rotate_bytes * keep // _LINE_BYTES
        """The approximate number of lines in the files before the oldest are removed."""
        if files.is_misplaced(path):
            _log.error(
                "audit files were renamed, swapped or copied: `%s` is not the newest. A new file begins; "
                "run `toolgate audit verify`",
                path.name,
            )
            files.rotate_files(path)
        sink = JsonLinesSink(path, rotate_bytes=rotate_bytes, keep=keep)
        ahead = path.with_suffix(".ahead")
        recover_log(path, ahead, sink)
        last = files.last_sequence(path)
        self.log = AuditLog(
            sink,
            ahead=open_write_ahead(ahead, scan_from=last + 1),
            first_sequence=last + 1,
            on_written=self._on_written,
        )
        self.written = asyncio.Event()
        """Set when more is written, and then replaced by a new event."""
        self.taken: dict[str, int] = {}
        """The number up to which each follower has the log, as last reported."""

    def lag(self) -> Mapping[str, float]:
        """The number of lines that each follower lacks."""
        last = self.log.last_sequence
        return {who: float(max(0, last - taken)) for who, taken in self.taken.items()}

    def close(self) -> None:
        """Write held lines, and close the file."""
        self.log.close()

    def _on_written(self) -> None:
        self.written.set()
        self.written = asyncio.Event()


def read_name(path: Path) -> str | None:
    """The name of the log at `path`; None without one."""
    try:
        name = path.with_name(path.name + ".id").read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return name if len(name) == NAME_CHARS and name.isalnum() else None


def _make_name(path: Path) -> str:
    file, name = path.with_name(path.name + ".id"), secrets.token_hex(NAME_CHARS // 2)
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text(f"{name}\n", "ascii")
    return name


@dataclass(eq=False)
class Backpressure:
    """Decides how long to wait before the next piece of a log is delivered."""

    clock_s: Callable[[], float] = time.monotonic
    processor_s: Callable[[], float] = time.process_time

    def __post_init__(self) -> None:
        self._checked_s, self._used_s = self.clock_s(), self.processor_s()

    def pause_s(self, took_s: float, *, behind: int, most: int) -> float:
        """`took_s`: the duration of the last piece. `behind`: the remaining lines, of which `most` may
        wait."""
        now_s, used_s = self.clock_s(), self.processor_s()
        passed_s, spent_s = now_s - self._checked_s, used_s - self._used_s
        self._checked_s, self._used_s = now_s, used_s
        is_busy = spent_s > BUSY_SHARE * passed_s
        return min(took_s * (1 / FOLLOW_SHARE - 1), MAX_PAUSE_S) if is_busy and behind <= most else 0.0


@asynccontextmanager
async def follow_log(
    journal: Journal,
    deliver: Deliver,
    *,
    who: str,
    retry_s: float = FIRST_DELAY_S,
    gather_s: float = GATHER_S,
) -> AsyncIterator[None]:
    """Deliver all written lines, in order, while the block runs. `who`: the follower's name in log
    messages."""
    with closing(LogTail(journal.path)) as tail:
        follower = LogFollower(journal, deliver, who, tail, retry_s, gather_s)
        running = asyncio.create_task(follower.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await follower.finish()


@dataclass(eq=False)
class LogFollower:
    """Delivers a log piece by piece. `run` it in a task."""

    journal: Journal
    deliver: Deliver
    who: str
    tail: LogTail
    retry_s: float
    gather_s: float
    _taken: int | None = field(default=None, init=False)
    _delay_s: float = field(default=0.0, init=False)
    _backpressure: Backpressure = field(default_factory=Backpressure, init=False)

    async def run(self) -> None:
        """Deliver written lines until cancelled."""
        while True:
            try:
                written, began_s = self.journal.written, time.monotonic()
                lines = await self._step()
                if not lines:
                    await written.wait()
                elif (behind := self.journal.log.last_sequence - (self._taken or 0)) >= files.MAX_CHUNK_LINES:
                    took_s, most = time.monotonic() - began_s, self.journal.kept_lines // 2
                    await asyncio.sleep(self._backpressure.pause_s(took_s, behind=behind, most=most))
                elif lines >= MANY_LINES:
                    await asyncio.sleep(self.gather_s)
            except (ToolgateError, OSError) as exc:
                await self._pause(exc)
            except Exception:
                _log.exception("following the audit log failed, retrying")
                await self._pause(None)

    async def finish(self) -> None:
        """Deliver the remaining lines, within `FINISH_TIMEOUT_S`."""
        self.journal.log.flush()
        with suppress(ToolgateError, OSError, TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                while await self._step():
                    pass

    async def _step(self) -> int:
        """Deliver the next lines, and return their number."""
        if self._taken is None:
            self._taken = self.journal.taken[self.who] = await self.deliver(EMPTY_CHUNK)
            self.journal.log.resume_after(self._taken)
        found = await asyncio.to_thread(self.tail.read, self._taken)
        if not found.lines:
            return 0
        taken = await self.deliver(found._replace(lines=list(filter(files.is_followed, found.lines))))
        if taken == found.after:
            raise StorageUnavailable("it accepts no events")
        lost = found.upto - found.after - len(found.lines)
        if found.after and lost > 0 and taken == found.upto:
            _log.error("%s lacks %d audit events: the log was rotated before they were read", self.who, lost)
        self._taken = self.journal.taken[self.who] = taken
        self._delay_s = 0.0
        return len(found.lines)

    async def _pause(self, exc: Exception | None) -> None:
        if exc is not None and not self._delay_s:
            _log.warning("%s does not accept audit events, retrying: %s", self.who, exc)
        self._taken = None
        self._delay_s = min(2 * self._delay_s or self.retry_s, MAX_DELAY_S)
        await asyncio.sleep(random.uniform(0.5, 1) * self._delay_s)  # noqa: S311 (spreads nodes, guards nothing)
