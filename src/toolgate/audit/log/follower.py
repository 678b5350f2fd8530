"""When whoever follows a log waits: calls come first.

To take an event in costs more than to write it down. So where this process is busy, that is put off until it
is not, and goes on slowly meanwhile; unless so much is behind that it might be rotated away first.

Keeps somebody up to date with a log: the index of this process, or control far away.

It reads the file and not the memory of who writes it, so that what is behind costs nothing and a crash loses
nothing: what was taken is known by its number, and the rest is read again. Only where files of the log were
rotated away meanwhile there is a gap, which is told.
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
"""More of a processor than this, used by the process, leaves no time for what can wait."""
FOLLOW_SHARE: Final = 0.04
"""Of the time, what then goes into following."""
MAX_PAUSE_S: Final = 2.0


class Backpressure:
    """Says how long to wait before the next piece of a log is taken in."""

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock_s = clock_s
        self._processor_s = processor_s
        self._looked_s = clock_s()
        self._used_s = processor_s()

    def pause_s(self, took_s: float, *, behind: int, most: int) -> float:
        """`took_s`: how long the last piece took. `behind`: lines still to take, of which `most` may wait."""
        now_s, used_s = self._clock_s(), self._processor_s()
        passed_s, spent_s = now_s - self._looked_s, used_s - self._used_s
        self._looked_s, self._used_s = now_s, used_s
        is_busy = spent_s > BUSY_SHARE * passed_s
        return min(took_s * (1 / FOLLOW_SHARE - 1), MAX_PAUSE_S) if is_busy and behind <= most else 0.0


FIRST_DELAY_S: Final = 0.2
MAX_DELAY_S: Final = 10.0
MANY_LINES: Final = 100
GATHER_S: Final = 0.5
"""Where so many came at once, more will: it is waited for, as taking in some costs nearly what many do."""
EMPTY_CHUNK: Final = LogChunk(0, 0, [])
"""Asks what was taken so far."""
FINISH_TIMEOUT_S: Final = 2.0
"""How long what a process wrote last may take to be taken, when it ends."""

_log = logging.getLogger(__name__)

Deliver = Callable[[LogChunk], Awaitable[int]]
"""Gets a piece of the log, without what is the log's own; says up to which number the log is taken by now."""


@asynccontextmanager
async def follow_log(
    journal: Journal, deliver: Deliver, *, who: str, tail: LogTail | None = None
) -> AsyncIterator[None]:
    """`deliver` gets all that is written, in order, while the block runs. `who`: in the log, who follows.

    `tail` is for whoever follows beside another: each keeps its own place.
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
    """One that follows. `run` it in a task of its own."""

    def __init__(self, journal: Journal, deliver: Deliver, *, who: str, tail: LogTail | None = None) -> None:
        self._journal = journal
        self._tail = tail or journal.tail
        self._deliver = deliver
        self._who = who
        self._taken: int | None = None
        self._delay_s = FIRST_DELAY_S
        self._giving_way = Backpressure()

    async def run(self) -> None:
        """Deliver whatever is written, until cancelled."""
        while True:
            try:
                written, began_s = self._journal.written, time.monotonic()
                lines = await self._step()
                if not lines:
                    await written.wait()
                elif (behind := self._journal.log.last_sequence - (self._taken or 0)) >= MAX_CHUNK_LINES:
                    took_s, most = time.monotonic() - began_s, self._journal.kept_lines // 2
                    await asyncio.sleep(self._giving_way.pause_s(took_s, behind=behind, most=most))
                elif lines >= MANY_LINES:
                    await asyncio.sleep(GATHER_S)
            except (ToolgateError, OSError) as exc:
                await self._pause(exc)
            except Exception:
                _log.exception("following the audit log failed, trying again")
                await self._pause(None)

    async def finish(self) -> None:
        """Deliver what is left, if that can be done at once."""
        self._journal.log.flush()
        with suppress(ToolgateError, OSError, TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                while await self._step():
                    pass

    async def _step(self) -> int:
        """Deliver the next lines; how many there were."""
        if self._taken is None:
            self._taken = self._journal.taken[self._who] = await self._deliver(EMPTY_CHUNK)
            self._journal.log.resume_after(self._taken)
        found = await asyncio.to_thread(self._tail.read, self._taken)
        if not found.lines:
            return 0
        taken = await self._deliver(found._replace(lines=list(filter(is_followed, found.lines))))
        if taken == found.after:
            raise StorageUnavailable("it takes nothing")
        lost = found.upto - found.after - len(found.lines)
        if found.after and lost > 0 and taken == found.upto:
            _log.error("%s lacks %d audit events: the log was rotated before they were read", self._who, lost)
        self._taken = self._journal.taken[self._who] = taken
        self._delay_s = FIRST_DELAY_S
        return len(found.lines)

    async def _pause(self, exc: Exception | None) -> None:
        if exc is not None and self._delay_s == FIRST_DELAY_S:
            _log.warning("%s does not take audit events, trying again: %s", self._who, exc)
        self._taken = None
        await asyncio.sleep(random.uniform(0.5, 1) * self._delay_s)  # noqa: S311 (spreads nodes, guards nothing)
        self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)
