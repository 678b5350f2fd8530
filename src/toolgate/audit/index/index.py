"""The audit that can be asked: what logs say, taken in by sequence, each event once.

A log is the truth, and this follows it (`following`): what is asked for here may be seconds behind, and is
made again from the log where it is lost. Nothing of it is ever waited for by a call.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from sqlalchemy import Connection

from toolgate.audit.database import READERS, Database, SqliteFile
from toolgate.audit.index.activity import Activity, VersionCalls, read_activity, read_versions
from toolgate.audit.index.statements import (
    Followed,
    prune,
    read_around,
    read_following,
    read_newest,
    read_one,
    read_page,
    read_taken,
    take_in,
)
from toolgate.audit.index.tables import prepare_tables
from toolgate.audit.lines import Batch
from toolgate.audit.queries import LOG_CHARS, Filter, KeptEvent, Place
from toolgate.audit.tokens import DAY_MS, TokenReport, read_tokens
from toolgate.audit.usage import Extent, Holder, Use, read_extent, read_uses
from toolgate.errors import StorageUnavailable

WITHIN_S: Final = 20.0
"""No answer takes longer. What a thread is at by then it ends for itself."""
PRUNE_STEP: Final = 1_000
"""Events dropped in one transaction: others have their turn in between."""

T = TypeVar("T")


def name_log(node: str, log: str) -> str:
    """What a log is called in the index: by who wrote it too, so that no node can speak in another's."""
    return hashlib.sha256(f"{node}\n{log}".encode()).hexdigest()[:LOG_CHARS]


@asynccontextmanager
async def open_sqlite_index(path: Path) -> AsyncIterator["AuditIndex"]:
    """The index in a file of its own, made where it is missing. Raises StartRefused."""
    file = SqliteFile(path)
    try:
        await asyncio.to_thread(file.prepare, prepare_tables)
        async with AuditIndex(file) as index:
            yield index
    finally:
        file.close()


class AuditIndex:
    """Takes events in and answers questions, off the event loop. `async with` it."""

    def __init__(self, database: Database) -> None:
        """`database` has its tables: see `prepare_tables`."""
        self._database = database
        self._reader = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="audit-read")
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit-write")
        self._news = asyncio.Event()
        self.counting = asyncio.Lock()
        """Held by whoever has calls counted, which takes a reader for long."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.shield(asyncio.to_thread(self._shut_down))

    def _shut_down(self) -> None:
        self._writer.shutdown(cancel_futures=True)
        self._reader.shutdown(cancel_futures=True)

    async def add(self, batch: Batch, *, node: str, log: str) -> int:
        """Take in a piece of a log; the number up to which that is here by now.

        What is here already is passed over, so whoever does not know what became of an attempt repeats it.
        A piece that would leave a gap is not taken: whoever sends it goes on after what the answer says.
        """
        name = name_log(node, log)
        if not batch.upto:
            return await self._read(partial(read_taken, log=name))
        work = partial(take_in, node=node, log=name, batch=batch, now_ms=int(time.time() * 1e3))
        taken = await self._change(work)
        self._news.set()
        self._news = asyncio.Event()
        return taken

    def news(self) -> asyncio.Event:
        """Set when the next events are added by this process."""
        return self._news

    async def newest(self) -> int:
        """The position of what came in last."""
        return await self._read(read_newest)

    async def page(self, asked: Filter, *, before: Place | None, limit: int) -> Sequence[KeptEvent]:
        """The newest events by time, or those before a place."""
        return await self._read(partial(read_page, asked=asked, before=before, limit=limit))

    async def following(self, asked: Filter, *, after: int, limit: int) -> Followed:
        """What came in after a position, in that order."""
        return await self._read(partial(read_following, asked=asked, after=after, limit=limit))

    async def find(self, log: str, seq: int) -> KeptEvent | None:
        """The event of that name."""
        return await self._read(partial(read_one, log=log, seq=seq))

    async def around(self, kept: KeptEvent) -> Sequence[KeptEvent]:
        """The others of its session, run, approval or request, in order: the nearest."""
        return await self._read(partial(read_around, kept=kept))

    async def activity(self, asked: Filter, *, since_ms: int, until_ms: int, buckets: int) -> Activity:
        """The calls of that time, counted."""
        work = partial(read_activity, asked=asked, since_ms=since_ms, until_ms=until_ms, buckets=buckets)
        return await self._read(work)

    async def versions(self, profile_id: str, *, since_ms: int, until_ms: int) -> Sequence[VersionCalls]:
        """The calls of that time by the version of a profile that decided."""
        work = partial(read_versions, profile_id=profile_id, since_ms=since_ms, until_ms=until_ms)
        return await self._read(work)

    async def tokens(self, *, since_ms: int, task_id: str | None) -> TokenReport:
        """What lists and results cost from that day on, of one task or of all."""
        return await self._read(partial(read_tokens, since_day=since_ms // DAY_MS, task_id=task_id))

    async def uses(self, by: Holder, *, since_ms: int, holder: str | None = None) -> Sequence[Use]:
        """Each tool that was used, by one holder or by each, with how often since then."""
        return await self._read(partial(read_uses, by=by, since_ms=since_ms, holder=holder))

    async def extent(self, *, since_ms: int, until_ms: int) -> Extent:
        """How much of that time is known."""
        return await self._read(partial(read_extent, since_ms=since_ms, until_ms=until_ms))

    async def prune(self, *, before_ms: int, keep: int) -> bool:
        """Drop some of what is too old, or too much; whether there may be more of it."""
        work = partial(prune, before_ms=before_ms, keep=keep, step=PRUNE_STEP)
        return await self._change(work) == PRUNE_STEP

    async def _read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._reader, partial(self._database.read, work))

    async def _change(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._writer, partial(self._database.change, work))

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await asyncio.get_running_loop().run_in_executor(threads, work)
        except TimeoutError as exc:
            raise StorageUnavailable("the audit index does not answer in time") from exc
