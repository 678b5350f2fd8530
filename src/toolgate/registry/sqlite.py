"""The embedded store: one SQLite file, one process, one worker thread that alone touches the file.

A write is acknowledged after its commit is on disk. Its batch is handed to the watchers from the worker
thread, in the order of the commits, before the writer hears of it; so a writer that is cancelled while
it waits takes nothing away from them.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from toolgate.errors import StartRefused, StorageFailed
from toolgate.model.revisions import Batch, Change, Kind, Listing, Stored, Write
from toolgate.registry.sqlite_file import SqliteFile
from toolgate.registry.store import KEEP_MS, KEEP_REVISIONS
from toolgate.registry.tables import (
    Damaged,
    commit_writes,
    compact_log,
    read_batches,
    read_history,
    read_listing,
    read_record,
)
from toolgate.registry.transaction import RecordKey
from toolgate.registry.watch import WatchHub

T = TypeVar("T")


@asynccontextmanager
async def open_sqlite_store(path: Path, clock_ms: Callable[[], int]) -> AsyncIterator["SqliteStore"]:
    """The store in the file `path`, made if it is missing. Raises StartRefused; see `SqliteFile`."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    opening = worker.submit(_try_open, path)
    try:
        # Shielded: a start that is cancelled still has a file to give back.
        opened = await asyncio.shield(asyncio.wrap_future(opening))
        if isinstance(opened, StartRefused):
            raise opened
        store = SqliteStore(opened, worker, clock_ms)
        try:
            yield store
        finally:
            await store.aclose()
    finally:
        closing = worker.submit(_close_opened, opening)
        worker.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))


def _try_open(path: Path) -> SqliteFile | StartRefused:
    """A refusal is returned, not raised: nobody may be left to hear it."""
    try:
        return SqliteFile(path)
    except StartRefused as exc:
        return exc


def _close_opened(opening: Future[SqliteFile | StartRefused]) -> None:
    if opening.exception() is None and isinstance(file := opening.result(), SqliteFile):
        file.close()


class SqliteStore:
    """The store over an open file. Made by `open_sqlite_store`."""

    def __init__(self, file: SqliteFile, worker: ThreadPoolExecutor, clock_ms: Callable[[], int]) -> None:
        self._file = file
        self._worker = worker
        self._clock_ms = clock_ms
        self._loop = asyncio.get_running_loop()
        self._hub = WatchHub(self._read_log, revision=file.head.revision, compacted=file.head.compacted)
        self._broken_by: str | None = None
        self._is_closed = False

    @property
    def epoch(self) -> str:
        return self._file.head.epoch

    @property
    def revision(self) -> int:
        return self._hub.revision

    async def write(
        self, writes: Sequence[Write], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        return await self._run(self._write, writes, actor, if_store_revision)

    async def get(self, kind: Kind, record_id: str) -> Stored | None:
        return await self._run(self._read, partial(read_record, key=RecordKey(kind, record_id)))

    async def list(self, kind: Kind | None = None) -> Listing:
        return await self._run(self._read, partial(read_listing, kind=kind))

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[Change]:
        return await self._run(self._read, partial(read_history, key=RecordKey(kind, record_id), limit=limit))

    def watch(self, since: int) -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        return self._hub.watch(since)

    async def compact(self, *, keep_revisions: int = KEEP_REVISIONS, keep_ms: int = KEEP_MS) -> int:
        return await self._run(self._compact, keep_revisions, keep_ms)

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._hub.close()
        # Queued behind all that was asked for before; shielded, so that it happens whatever becomes of us.
        closing = self._worker.submit(self._file.close)
        await asyncio.shield(asyncio.wrap_future(closing))

    async def _read_log(self, after: int, upto: int) -> Sequence[Batch]:
        return await self._run(self._read, partial(read_batches, after=after, upto=upto))

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._is_closed:
            raise StorageFailed("the store is closed")
        return await self._loop.run_in_executor(self._worker, work, *arguments)

    # All above runs in the loop's thread, all below in the worker's.

    def _write(self, writes: Sequence[Write], actor: str, if_store_revision: int | None) -> int:
        commit = partial(
            commit_writes,
            writes=writes,
            actor=actor,
            at_ms=self._clock_ms(),
            if_store_revision=if_store_revision,
        )
        batch = self._change(commit)
        if batch.changes:
            self._loop.call_soon_threadsafe(self._hub.publish, batch)
        return batch.revision

    def _compact(self, keep_revisions: int, keep_ms: int) -> int:
        cutoff_ms = self._clock_ms() - keep_ms
        compacted = self._change(partial(compact_log, keep_revisions=keep_revisions, cutoff_ms=cutoff_ms))
        self._loop.call_soon_threadsafe(self._hub.on_compacted, compacted)
        return compacted

    def _change(self, work: Callable[[Connection], T]) -> T:
        """A transaction that writes. After an I/O error there is no other until a restart.

        A failed fsync may have dropped the very pages that a second one would then report as written.
        """
        if self._broken_by is not None:
            raise StorageFailed(f"the registry is read-only since an error: {self._broken_by}")
        try:
            with self._file.connection.begin():
                return work(self._file.connection)
        except (DBAPIError, Damaged) as exc:
            if not _is_passing(exc):
                self._broken_by = _cause(exc)
            raise StorageFailed(f"cannot write to the registry: {_cause(exc)}") from exc

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._file.connection.begin():
                return work(self._file.connection)
        except (DBAPIError, Damaged) as exc:
            raise StorageFailed(f"cannot read the registry: {_cause(exc)}") from exc


def _cause(exc: DBAPIError | Damaged) -> str:
    return str(exc.orig if isinstance(exc, DBAPIError) else exc)


def _is_passing(exc: DBAPIError | Damaged) -> bool:
    """Whether the transaction was undone cleanly, so that a later one may succeed: the disk is full."""
    cause = exc.orig if isinstance(exc, DBAPIError) else None
    return isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode == sqlite3.SQLITE_FULL
