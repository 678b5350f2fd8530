"""Keeps a follower up to date with a log: the index of this process, or a remote control plane.

It reads the files, not the memory of the writer. So a backlog costs nothing and a crash loses nothing: the
follower knows the number of its last line, and the rest is read again. Only if files were rotated away
meanwhile is there a gap, which is logged.

Calls come first. Delivering an event costs more than writing it, so a busy process delivers slowly, unless so
much is left that it might be rotated away.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from toolgate.audit.log.files import MAX_CHUNK_LINES, LogChunk, LogTail
from toolgate.audit.log.journal import Journal
from toolgate.audit.log.lines import is_followed
from toolgate.errors import StorageUnavailable, ToolgateError

BUSY_SHARE: Final = 0.6
"""Of a processor. A process that uses more has no time for what can wait."""
FOLLOW_SHARE: Final = 0.04
"""Of the time, for deliveries of a busy process."""
MAX_PAUSE_S: Final = 2.0
FIRST_DELAY_S: Final = 0.2
MAX_DELAY_S: Final = 10.0
MANY_LINES: Final = 100
GATHER_S: Final = 0.5
"""After that many lines more will come. It pays to wait: one delivery costs nearly what a large one does."""
EMPTY_CHUNK: Final = LogChunk(0, 0, [])
"""Asks the follower for its number."""
FINISH_TIMEOUT_S: Final = 2.0
"""For the last lines of a process that ends."""

_log = logging.getLogger(__name__)

Deliver = Callable[[LogChunk], Awaitable[int]]
"""Takes a piece of the log. Returns the number up to which the follower has the log."""


class Backpressure:
    """Decides how long to wait before the next piece of a log is delivered."""

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock_s = clock_s
        self._processor_s = processor_s
        self._checked_s = clock_s()
        self._used_s = processor_s()

    def pause_s(self, took_s: float, *, behind: int, most: int) -> float:
        """`took_s`: how long the last piece took. `behind`: lines left, of which `most` may wait."""
        now_s, used_s = self._clock_s(), self._processor_s()
        passed_s, spent_s = now_s - self._checked_s, used_s - self._used_s
        self._checked_s, self._used_s = now_s, used_s
        is_busy = spent_s > BUSY_SHARE * passed_s
        return min(took_s * (1 / FOLLOW_SHARE - 1), MAX_PAUSE_S) if is_busy and behind <= most else 0.0


@asynccontextmanager
async def follow_log(
    journal: Journal, deliver: Deliver, *, who: str, tail: LogTail | None = None
) -> AsyncIterator[None]:
    """Deliver all that is written, in order, while the block runs. `who`: the follower, for the log.

    `tail`: one reader for each follower, if there are several: each keeps its own place.
    """
    follower = LogFollower(journal, deliver, who=who, tail=tail)
    running = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        await follower.finish()


class LogFollower:
    """Delivers a log piece by piece. `run` it in a task."""

    def __init__(self, journal: Journal, deliver: Deliver, *, who: str, tail: LogTail | None = None) -> None:
        self._journal = journal
        self._tail = tail or journal.tail
        self._deliver = deliver
        self._who = who
        self._taken: int | None = None
        self._delay_s = FIRST_DELAY_S
        self._backpressure = Backpressure()

    async def run(self) -> None:
        """Deliver what is written, until cancelled."""
        while True:
            try:
                written, began_s = self._journal.written, time.monotonic()
                lines = await self._step()
                if not lines:
                    await written.wait()
                elif (behind := self._journal.log.last_sequence - (self._taken or 0)) >= MAX_CHUNK_LINES:
                    took_s, most = time.monotonic() - began_s, self._journal.kept_lines // 2
                    await asyncio.sleep(self._backpressure.pause_s(took_s, behind=behind, most=most))
                elif lines >= MANY_LINES:
                    await asyncio.sleep(GATHER_S)
            except (ToolgateError, OSError) as exc:
                await self._pause(exc)
            except Exception:
                _log.exception("following the audit log failed, trying again")
                await self._pause(None)

    async def finish(self) -> None:
        """Deliver what is left, within `FINISH_TIMEOUT_S`."""
        self._journal.log.flush()
        with suppress(ToolgateError, OSError, TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                while await self._step():
                    pass

    async def _step(self) -> int:
        """Deliver the next lines, and return how many there were."""
        if self._taken is None:
            self._taken = self._journal.taken[self._who] = await self._deliver(EMPTY_CHUNK)
            self._journal.log.resume_after(self._taken)
        found = await asyncio.to_thread(self._tail.read, self._taken)
        if not found.lines:
            return 0
        taken = await self._deliver(found._replace(lines=list(filter(is_followed, found.lines))))
        if taken == found.after:
            raise StorageUnavailable("it accepts no events")
        lost = found.upto - found.after - len(found.lines)
        if found.after and lost > 0 and taken == found.upto:
            _log.error("%s lacks %d audit events: the log was rotated before they were read", self._who, lost)
        self._taken = self._journal.taken[self._who] = taken
        self._delay_s = FIRST_DELAY_S
        return len(found.lines)

    async def _pause(self, exc: Exception | None) -> None:
        if exc is not None and self._delay_s == FIRST_DELAY_S:
            _log.warning("%s does not accept audit events, trying again: %s", self._who, exc)
        self._taken = None
        await asyncio.sleep(random.uniform(0.5, 1) * self._delay_s)  # noqa: S311 (spreads nodes, guards nothing)
        self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)
