"""Opens registries: a SQLite file or a PostgreSQL database. Exports them to a file and imports them.

An import first checks the whole file, and then stores all of it in one transaction. It keeps revisions and
history, and gets a new epoch: nodes that know another registry list again. PostgreSQL is loaded only if it is
used, because its driver takes as long to load as Toolgate.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Table, delete, insert

from toolgate.errors import ImportRefused, StartRefused
from toolgate.lazy_modules import load_lazily
from toolgate.model.revisions import RecordChange, StoredRecord
from toolgate.registry.database import statements
from toolgate.registry.database.sqlite import SqliteDatabase
from toolgate.registry.database.tables import CHANGES, DIGESTS, RECORDS
from toolgate.registry.database.transactions import TransactionRunner, Transactions
from toolgate.registry.records.transaction import chain_digest, start_digest
from toolgate.registry.store import DEFAULT_STORE_LIMITS, StoreLimits
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
) -> AsyncIterator[Store]:
    """Open the store in the file `path`, and create it if needed. Raises StartRefused."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    opening = worker.submit(SqliteDatabase, path)
    try:
        # Shielded: a cancelled start still has to close the file.
        opened = await asyncio.shield(asyncio.wrap_future(opening))
        transactions = Transactions(opened, reader=worker, writer=worker)
        store = Store(transactions, opened.head, clock_ms=clock_ms, limits=limits)
        try:
            yield store
        finally:
            await store.aclose()
    finally:
        # Queued after all transactions, and shielded, so that it runs even if this task is cancelled.
        closed = worker.submit(_close_opened, opening)
        worker.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closed))


def _close_opened(opening: Future[SqliteDatabase]) -> None:
    if opening.exception() is None:
        opening.result().close()


def is_postgres_url(target: str | Path) -> bool:
    """Whether `target` is a database URL, not a file."""
    return isinstance(target, str) and target.startswith(("postgresql:", "postgres:"))


def open_store(
    target: str | Path, clock_ms: Callable[[], int], *, waits: bool = False
) -> AbstractAsyncContextManager[Store]:
    """Open the store at `target`, and create it if needed. Raises StartRefused.

    `waits`: whether to wait for a database that is unreachable.
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
    else:
        database = SqliteDatabase(Path(target))
    with closing(database):
        yield database


T = TypeVar("T")


def export_store(target: str | Path, out: Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Write the registry at `target` (an unused SQLite file, or a PostgreSQL URL) to `out`."""
    if not is_postgres_url(target) and not Path(target).exists():
        raise StartRefused(f"there is no registry at `{target}`", hint="check the data directory")
    with open_database(target) as database:
        return database.read(partial(export_tables, path=out, progress=progress))


def import_store(file: Path, target: str | Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Fill the empty registry at `target`, created if needed, from `file`. Raises ImportRefused."""
    header = check_export(file)
    work = partial(_fill_registry, file=file, header=header, progress=progress)
    with open_database(target) as database:
        return database.change(work, "registry")


def _fill_registry(
    connection: Connection, *, file: Path, header: ExportHeader, progress: ExportProgress | None
) -> ExportSummary:
    head = statements.lock_head(connection)
    if head.revision or statements.read_listing(connection).records:
        raise ImportRefused(
            f"the registry is not empty: it is at revision {head.revision}",
            hint="restore into a new data directory or database",
        )
    epoch, counts = uuid4().hex, Counter[str]()
    digests: list[dict[str, Any]] = [{"revision": header.compacted, "digest": start_digest(epoch)}]
    entries = _encode_rows(read_export(file), digests)
    for table, found in groupby(entries, itemgetter(0)):
        for rows in _split_rows(row for _, row in found):
            connection.execute(insert(table), rows)
            counts[table.name] += len(rows)
            if progress is not None:
                progress(counts.total())
    connection.execute(delete(DIGESTS))  # the digest of the empty registry
    for rows in _split_rows(iter(digests)):
        connection.execute(insert(DIGESTS), rows)
    statements.store_head(
        connection, replace(head, epoch=epoch, revision=header.revision, compacted=header.compacted)
    )
    return ExportSummary(
        epoch=epoch, revision=header.revision, records=counts[RECORDS.name], changes=counts[CHANGES.name]
    )


def _encode_rows(
    entries: Iterator[StoredRecord | RecordChange], digests: list[dict[str, Any]]
) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield a row for each entry, and add the digest of the log up to each revision to `digests`."""
    for revision, group in groupby(entries, lambda one: one.revision if isinstance(one, RecordChange) else 0):
        changes = []
        for position, entry in enumerate(group):
            if isinstance(entry, StoredRecord):
                yield RECORDS, statements.record_row(entry)
            else:
                changes.append(entry)
                yield CHANGES, statements.change_row(entry, position)
        if changes:
            digest = chain_digest(digests[-1]["digest"], revision, changes)
            digests.append({"revision": revision, "digest": digest})


def _split_rows(rows: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(islice(rows, statements.ROWS_AT_ONCE)):
        yield chunk
