"""A registry moved as a whole: from one engine into a file, and from a file into an empty one of any engine.

Nothing is stored before all of the file was found sound, and then all of it in one transaction. What is
imported keeps its revisions and its history, and gets a new epoch: nodes that knew another must list again.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, delete, insert

from toolgate.errors import ImportRefused, StartRefused
from toolgate.model.revisions import RecordChange, StoredRecord
from toolgate.registry.database.statements import ROWS_AT_ONCE, read_listing
from toolgate.registry.database.tables import (
    CHANGES,
    DIGESTS,
    RECORDS,
    StoreHead,
    change_row,
    lock_head,
    record_row,
    store_head,
)
from toolgate.registry.records.transaction import chain_digest, start_digest
from toolgate.registry.store.engines import is_postgres_url, open_database
from toolgate.registry.store.export import (
    ExportHeader,
    ExportProgress,
    ExportSummary,
    check_export,
    read_export,
)
from toolgate.registry.store.sql_store import export_tables

T = TypeVar("T")


def export_store(target: str | Path, out: Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Write the registry at `target` (a SQLite file that nobody runs on, or a PostgreSQL URL) into `out`."""
    if not is_postgres_url(target) and not Path(target).exists():
        raise StartRefused(f"there is no registry at `{target}`", hint="check the data directory")
    with open_database(target) as database:
        return database.read(partial(export_tables, path=out, progress=progress))


def import_store(file: Path, target: str | Path, progress: ExportProgress | None = None) -> ExportSummary:
    """Fill the empty registry at `target`, made if it is missing, from `file`. Raises ImportRefused."""
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
    """The digests of a log that is read in its order, stored in a few statements."""

    def __init__(self, connection: Connection, revision: int, digest: str) -> None:
        self._connection = connection
        self._changes: list[RecordChange] = []
        self._digest = digest
        self._rows = [{"revision": revision, "digest": digest}]

    def follow(self, entry: StoredRecord | RecordChange) -> StoredRecord | RecordChange:
        """Take note of a change, and hand it on."""
        if isinstance(entry, RecordChange):
            if self._changes and self._changes[0].revision != entry.revision:
                self._close_revision()
            self._changes.append(entry)
        return entry

    def end(self) -> None:
        """Store them, in place of what an empty registry has."""
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
