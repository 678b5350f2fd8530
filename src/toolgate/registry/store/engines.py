"""Opens registries: a SQLite file or a PostgreSQL database. Exports them into a file and imports them from
one.

An import stores nothing before the whole file was found sound, and then all of it in one transaction. It
keeps revisions and history, and gets a new epoch: nodes that knew another registry list again. PostgreSQL is
loaded for its users only, since its driver takes as long to load as Toolgate.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, delete, insert

from toolgate.errors import ImportRefused, StartRefused
from toolgate.lazy_modules import load_lazily
from toolgate.model.revisions import RecordChange, StoredRecord
from toolgate.registry.database.rows import StoreHead, change_row, lock_head, record_row, store_head
from toolgate.registry.database.sqlite import RegistryFile, SqliteDatabase
from toolgate.registry.database.statements import ROWS_AT_ONCE, read_listing
from toolgate.registry.database.tables import CHANGES, DIGESTS, RECORDS
from toolgate.registry.database.transactions import TransactionRunner, Transactions
from toolgate.registry.records.transaction import chain_digest, start_digest
from toolgate.registry.store.contract import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.export import (
    ExportHeader,
    ExportProgress,
    ExportSummary,
    check_export,
    read_export,
)
from toolgate.registry.store.sql_store import Store, export_tables


@asynccontextmanager
async def open_sqlite_store(
    path: Path, clock_ms: Callable[[], int], limits: StoreLimits = DEFAULT_STORE_LIMITS
) -> AsyncIterator["SqliteStore"]:
    """Open the store in the file `path`, and create it if needed. Raises StartRefused."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    opening = worker.submit(_try_open, path)
    try:
        # Shielded: a cancelled start still has to close the file.
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
    """Return a refusal, not raise it: the caller may be gone, and its future never read."""
    try:
        return RegistryFile(path)
    except StartRefused as exc:
        return exc


def _close_opened(opening: Future[RegistryFile | StartRefused]) -> None:
    if opening.exception() is None and isinstance(file := opening.result(), RegistryFile):
        file.close()


class SqliteStore(Store):
    """The store over an open file. `open_sqlite_store` makes it."""

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
        # Queued after all transactions, and shielded, so that it runs even if this task is cancelled.
        closing = self._worker.submit(self._file.close)
        await asyncio.shield(asyncio.wrap_future(closing))


def is_postgres_url(target: str | Path) -> bool:
    """Whether `target` is a database to connect to, not a file."""
    return isinstance(target, str) and target.startswith(("postgresql:", "postgres:"))


def open_store(
    target: str | Path, clock_ms: Callable[[], int], *, waits: bool = False
) -> AbstractAsyncContextManager[Store]:
    """Open the store at `target`, and create it if needed. Raises StartRefused.

    `waits`: whether to wait for a database that cannot be reached.
    """
    if is_postgres_url(target):
        open_postgres_store: Callable[..., AbstractAsyncContextManager[Store]]
        open_postgres_store = load_lazily("toolgate.registry.store.postgresql").open_postgres_store
        return open_postgres_store(target, clock_ms, waits=waits)
    return open_sqlite_store(Path(target), clock_ms)


@contextmanager
def open_database(target: str | Path) -> Iterator[TransactionRunner]:
    """Open the tables at `target` without an event loop, and create them if needed. Raises StartRefused."""
    if is_postgres_url(target):
        database = load_lazily("toolgate.registry.database.postgresql").PostgresDatabase(target)
        database.prepare()
        try:
            yield database
        finally:
            database.close()
    else:
        file = RegistryFile(Path(target))
        try:
            yield SqliteDatabase(file)
        finally:
            file.close()


T = TypeVar("T")


def export_store(target: str | Path, out: Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Write the registry at `target` (a SQLite file not in use, or a PostgreSQL URL) into `out`."""
    if not is_postgres_url(target) and not Path(target).exists():
        raise StartRefused(f"there is no registry at `{target}`", hint="check the data directory")
    with open_database(target) as database:
        return database.read(partial(export_tables, path=out, progress=progress))


def import_store(file: Path, target: str | Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Fill the empty registry at `target`, created if needed, from `file`. Raises ImportRefused."""
    header = check_export(file)
    with open_database(target) as database:
        return database.change(
            partial(_fill_registry, file=file, header=header, progress=progress), "registry"
        )


def _fill_registry(
    connection: Connection, *, file: Path, header: ExportHeader, progress: ExportProgress | None
) -> ExportSummary:
    head = lock_head(connection)
    if head.revision or read_listing(connection).records:
        raise ImportRefused(
            f"the registry is not empty: it is at revision {head.revision}",
            hint="import into a new data directory or database",
        )
    counts = {StoredRecord: 0, RecordChange: 0}
    epoch = uuid4().hex
    chain = _DigestChain(connection, header.compacted, start_digest(epoch))
    for kind, entries in groupby(map(chain.follow, read_export(file)), type):
        table = RECORDS if kind is StoredRecord else CHANGES
        for rows in _split_rows(_encode_rows(entries)):
            connection.execute(insert(table), rows)
            counts[kind] += len(rows)
            if progress is not None:
                progress(sum(counts.values()))
    chain.end()
    head = StoreHead(
        schema_version=head.schema_version,
        epoch=epoch,
        revision=header.revision,
        compacted=header.compacted,
    )
    store_head(connection, head)
    return ExportSummary(
        epoch=head.epoch, revision=head.revision, records=counts[StoredRecord], changes=counts[RecordChange]
    )


class _DigestChain:
    """Computes the digests of a log while it is read, and stores them in a few statements."""

    def __init__(self, connection: Connection, revision: int, digest: str) -> None:
        self._connection = connection
        self._changes: list[RecordChange] = []
        self._digest = digest
        self._rows = [{"revision": revision, "digest": digest}]

    def follow(self, entry: StoredRecord | RecordChange) -> StoredRecord | RecordChange:
        """Note a change and return it."""
        if isinstance(entry, RecordChange):
            if self._changes and self._changes[0].revision != entry.revision:
                self._close_revision()
            self._changes.append(entry)
        return entry

    def end(self) -> None:
        """Store the digests, in place of those of an empty registry."""
        if self._changes:
            self._close_revision()
        self._connection.execute(delete(DIGESTS))
        for rows in _split_rows(iter(self._rows)):
            self._connection.execute(insert(DIGESTS), rows)

    def _close_revision(self) -> None:
        revision = self._changes[0].revision
        self._digest = chain_digest(self._digest, revision, self._changes)
        self._rows.append({"revision": revision, "digest": self._digest})
        self._changes = []


def _encode_rows(entries: Iterable[StoredRecord | RecordChange]) -> Iterator[dict[str, Any]]:
    revision = position = 0
    for entry in entries:
        if isinstance(entry, StoredRecord):
            yield record_row(entry)
        else:
            position = position + 1 if entry.revision == revision else 0
            revision = entry.revision
            yield change_row(entry, position)


def _split_rows(rows: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        yield chunk
