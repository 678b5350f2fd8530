"""How an engine runs transactions on the index. Used from threads; failures are ours, not the library's.

The audit that can be asked: what logs say, taken in by sequence, each event once.

A log is the truth, and this follows it (`following`): what is asked for here may be seconds behind, and is
made again from the log where it is lost. Nothing of it is ever waited for by a call.
"""

import asyncio
import hashlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError

from toolgate.audit.index.activity import Activity, VersionCalls, read_activity, read_versions
from toolgate.audit.index.statements import (
    DAY_MS,
    EventBatch,
    IndexExtent,
    TokenReport,
    ToolUse,
    UseColumn,
    insert_batch,
    prune,
    read_after,
    read_around,
    read_extent,
    read_newest,
    read_one,
    read_page,
    read_taken,
    read_tokens,
    read_uses,
)
from toolgate.audit.index.tables import LOG_CHARS, EventFilter, EventPosition, IndexedEvent, prepare_tables
from toolgate.audit.log.lines import LineBatch
from toolgate.errors import StartRefused, StorageFailed, StorageUnavailable
from toolgate.telemetry.logs import FULL_DISK_HINT, describe_full_disk

T = TypeVar("T")

READERS: Final = 2
_BUSY_S: Final = 5.0
_PRAGMAS: Final = (
    "journal_mode = WAL",
    # A crash of the machine may undo the newest transactions: their events are in the log.
    "synchronous = NORMAL",
    "wal_autocheckpoint = 4000",
    "trusted_schema = OFF",
)


class IndexDatabase(Protocol):
    """Where the index is."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """`work` over one unchanging state. Waits for no writer, and no writer waits for it."""

    def change(self, work: Callable[[Connection], T]) -> T:
        """`work` and a commit, or nothing at all."""


class IndexFile:
    """A file of its own: writing to it waits for no other store, and no other waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            pool_size=READERS + 1,
            max_overflow=0,
            hide_parameters=True,
            connect_args={"timeout": _BUSY_S, "isolation_level": None, "check_same_thread": False},
        )
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)

    def prepare(self, work: Callable[[Connection], None]) -> None:
        """Make the file where it is missing, for its owner only, and do `work`. Raises StartRefused."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.change(work)
            self.change(_analyze)
        except (OSError, StorageFailed) as exc:
            if full := describe_full_disk(self._path, exc):
                raise StartRefused(full, hint=FULL_DISK_HINT) from exc
            raise StartRefused(
                f"cannot use the audit index `{self._path}`: {exc}",
                hint="move it away: it is made again from the audit log, as far as that goes back",
            ) from exc

    def read(self, work: Callable[[Connection], T]) -> T:
        with _translate_errors("cannot read the audit index"), self._engine.connect() as connection:
            return work(connection)

    def change(self, work: Callable[[Connection], T]) -> T:
        with (
            _translate_errors("cannot write to the audit index"),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            return work(connection)

    def close(self) -> None:
        """Give the file back. Idempotent."""
        self._engine.dispose()


def _analyze(connection: Connection) -> None:
    """Have SQLite know which index leads to fewer rows. It looks at a sample of each."""
    connection.exec_driver_sql("PRAGMA analysis_limit = 400")
    connection.exec_driver_sql("ANALYZE")


def _on_connect(dbapi: sqlite3.Connection, _record: Any) -> None:
    for pragma in _PRAGMAS:
        dbapi.execute(f"PRAGMA {pragma}").fetchall()


def _on_begin(connection: Connection) -> None:
    # The driver's own idea of when a transaction begins is off. A writer says at once that it is one.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    try:
        yield
    # SQLite quotes damaged text in its complaint, and its driver then cannot read the complaint.
    except (DBAPIError, UnicodeDecodeError) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        raise StorageFailed(f"{what}: {cause}") from exc


QUERY_TIMEOUT_S: Final = 20.0
"""No answer takes longer. What a thread is at by then it ends for itself."""
PRUNE_STEP: Final = 1_000
"""Events dropped in one transaction: others have their turn in between."""


def name_log(node: str, log: str) -> str:
    """What a log is called in the index: by who wrote it too, so that no node can speak in another's."""
    return hashlib.sha256(f"{node}\n{log}".encode()).hexdigest()[:LOG_CHARS]


@asynccontextmanager
async def open_sqlite_index(path: Path) -> AsyncIterator["AuditIndex"]:
    """The index in a file of its own, made where it is missing. Raises StartRefused."""
    file = IndexFile(path)
    try:
        await asyncio.to_thread(file.prepare, prepare_tables)
        async with AuditIndex(file) as index:
            yield index
    finally:
        file.close()


class AuditIndex:
    """Takes events in and answers questions, off the event loop. `async with` it."""

    def __init__(self, database: IndexDatabase) -> None:
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

    async def add(self, batch: LineBatch, *, node: str, log: str) -> int:
        """Take in a piece of a log; the number up to which that is here by now.

        What is here already is passed over, so whoever does not know what became of an attempt repeats it.
        A piece that would leave a gap is not taken: whoever sends it goes on after what the answer says.
        """
        name = name_log(node, log)
        if not batch.upto:
            return await self._read(partial(read_taken, log=name))
        work = partial(insert_batch, node=node, log=name, batch=batch, now_ms=int(time.time() * 1e3))
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

    async def page(
        self, asked: EventFilter, *, before: EventPosition | None, limit: int
    ) -> Sequence[IndexedEvent]:
        """The newest events by time, or those before a place."""
        return await self._read(partial(read_page, asked=asked, before=before, limit=limit))

    async def following(self, asked: EventFilter, *, after: int, limit: int) -> EventBatch:
        """What came in after a position, in that order."""
        return await self._read(partial(read_after, asked=asked, after=after, limit=limit))

    async def find(self, log: str, seq: int) -> IndexedEvent | None:
        """The event of that name."""
        return await self._read(partial(read_one, log=log, seq=seq))

    async def around(self, kept: IndexedEvent) -> Sequence[IndexedEvent]:
        """The others of its session, run, approval or request, in order: the nearest."""
        return await self._read(partial(read_around, kept=kept))

    async def activity(self, asked: EventFilter, *, since_ms: int, until_ms: int, buckets: int) -> Activity:
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

    async def uses(self, by: UseColumn, *, since_ms: int, holder: str | None = None) -> Sequence[ToolUse]:
        """Each tool that was used, by one holder or by each, with how often since then."""
        return await self._read(partial(read_uses, by=by, since_ms=since_ms, holder=holder))

    async def extent(self, *, since_ms: int, until_ms: int) -> IndexExtent:
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
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(threads, work)
        except TimeoutError as exc:
            raise StorageUnavailable("the audit index does not answer in time") from exc
