"""The embedded store: one SQLite file, one process, one worker thread that alone touches the file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from toolgate.errors import StartRefused, StorageFailed
from toolgate.registry.database.sqlite import RegistryFile
from toolgate.registry.database.tables import DamagedRow
from toolgate.registry.database.transactions import Topic, Transactions
from toolgate.registry.store.contract import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.sql_store import SqlStore

T = TypeVar("T")

_PASSING: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})


@asynccontextmanager
async def open_sqlite_store(
    path: Path, clock_ms: Callable[[], int], limits: StoreLimits = DEFAULT_STORE_LIMITS
) -> AsyncIterator["SqliteStore"]:
    """The store in the file `path`, made if it is missing. Raises StartRefused; see `SqliteFile`."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    opening = worker.submit(_try_open, path)
    try:
        # Shielded: a start that is cancelled still has a file to give back.
        opened = await asyncio.shield(asyncio.wrap_future(opening))
        if isinstance(opened, StartRefused):
            raise opened
        store = SqliteStore(opened, worker, clock_ms, limits)
        try:
            yield store
        finally:
            await store.aclose()
    finally:
        closing = worker.submit(_close_opened, opening)
        worker.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))


def _try_open(path: Path) -> RegistryFile | StartRefused:
    """A refusal is returned, not raised: nobody may be left to hear it."""
    try:
        return RegistryFile(path)
    except StartRefused as exc:
        return exc


def _close_opened(opening: Future[RegistryFile | StartRefused]) -> None:
    if opening.exception() is None and isinstance(file := opening.result(), RegistryFile):
        file.close()


class SqliteStore(SqlStore):
    """The store over an open file. Made by `open_sqlite_store`."""

    def __init__(
        self, file: RegistryFile, worker: ThreadPoolExecutor, clock_ms: Callable[[], int], limits: StoreLimits
    ) -> None:
        transactions = Transactions(SqliteDatabase(file), reader=worker, writer=worker)
        super().__init__(transactions, file.head, clock_ms=clock_ms, limits=limits)
        self._file = file
        self._worker = worker

    async def aclose(self) -> None:
        if self._transactions.is_closed:
            return
        await super().aclose()
        # Queued behind all that was asked for before; shielded, so that it happens whatever becomes of us.
        closing = self._worker.submit(self._file.close)
        await asyncio.shield(asyncio.wrap_future(closing))


class SqliteDatabase:
    """Transactions on an open file, from the thread that opened it."""

    def __init__(self, file: RegistryFile) -> None:
        self._file = file
        self._broken_by: str | None = None

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:  # noqa: ARG002 (a file)
        try:
            with self._file.transaction() as connection:
                return work(connection)
        except (DBAPIError, DamagedRow) as exc:
            raise StorageFailed(f"cannot read the registry: {_cause(exc)}") from exc

    def change(self, work: Callable[[Connection], T], topic: Topic) -> T:  # noqa: ARG002 (nobody else listens)
        """A transaction that writes. After an I/O error there is no other until a restart.

        A failed fsync may have dropped the very pages that a second one would then report as written.
        """
        if self._broken_by is not None:
            raise StorageFailed(f"the registry is read-only since an error: {self._broken_by}")
        try:
            with self._file.transaction() as connection:
                return work(connection)
        except (DBAPIError, DamagedRow) as exc:
            if not _is_passing(exc):
                self._broken_by = _cause(exc)
            raise StorageFailed(f"cannot write to the registry: {_cause(exc)}") from exc


def _cause(exc: DBAPIError | DamagedRow) -> str:
    return str(exc.orig if isinstance(exc, DBAPIError) else exc)


def _is_passing(exc: DBAPIError | DamagedRow) -> bool:
    """Whether the transaction was undone cleanly, so that a later one may succeed.

    The disk is full, or another program holds the write lock.
    """
    cause = exc.orig if isinstance(exc, DBAPIError) else None
    return isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode in _PASSING
