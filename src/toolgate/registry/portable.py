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

from sqlalchemy import Connection, insert

from toolgate.errors import ImportRefused, StartRefused
from toolgate.model.revisions import Change, Stored
from toolgate.registry.engines import is_postgres_url, open_database
from toolgate.registry.exports import Exported, Header, Progress, check_export, read_export
from toolgate.registry.sql_store import export_tables
from toolgate.registry.statements import ROWS_AT_ONCE, read_listing
from toolgate.registry.tables import CHANGES, RECORDS, Head, change_row, lock_head, record_row, store_head

T = TypeVar("T")


def export_store(target: str | Path, out: Path, progress: Progress | None = None) -> Exported:
    """Write the registry at `target` (a SQLite file that nobody runs on, or a PostgreSQL URL) into `out`."""
    if not is_postgres_url(target) and not Path(target).exists():
        raise StartRefused(f"there is no registry at `{target}`", hint="check the data directory")
    with open_database(target) as database:
        return database.read(partial(export_tables, path=out, progress=progress))


def import_store(file: Path, target: str | Path, progress: Progress | None = None) -> Exported:
    """Fill the empty registry at `target`, made if it is missing, from `file`. Raises ImportRefused."""
    header = check_export(file)
    with open_database(target) as database:
        return database.change(partial(_fill, file=file, header=header, progress=progress), "registry")


def _fill(connection: Connection, *, file: Path, header: Header, progress: Progress | None) -> Exported:
    head = lock_head(connection)
    if head.revision or read_listing(connection).records:
        raise ImportRefused(
            f"the registry is not empty: it is at revision {head.revision}",
            hint="import into a new data directory or database",
        )
    counts = {Stored: 0, Change: 0}
    for kind, entries in groupby(read_export(file), type):
        table = RECORDS if kind is Stored else CHANGES
        for rows in _chunks(_rows(entries)):
            connection.execute(insert(table), rows)
            counts[kind] += len(rows)
            if progress is not None:
                progress(sum(counts.values()))
    head = Head(
        schema_version=head.schema_version,
        epoch=uuid4().hex,
        revision=header.revision,
        compacted=header.compacted,
    )
    store_head(connection, head)
    return Exported(epoch=head.epoch, revision=head.revision, records=counts[Stored], changes=counts[Change])


def _rows(entries: Iterable[Stored | Change]) -> Iterator[dict[str, Any]]:
    revision = position = 0
    for entry in entries:
        if isinstance(entry, Stored):
            yield record_row(entry)
        else:
            position = position + 1 if entry.revision == revision else 0
            revision = entry.revision
            yield change_row(entry, position)


def _chunks(rows: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        yield chunk
