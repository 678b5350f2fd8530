"""The statements of the revisioned store: each function is the work of one transaction, on every engine."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, bindparam, delete, func, insert, select, tuple_, union_all
from sqlalchemy.exc import NoResultFound

from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.database.rows import (
    HEAD_AS_RECORD,
    HEAD_KIND,
    HEAD_QUERY,
    StoreHead,
    change_from_row,
    change_row,
    digest_at,
    head_from_listing,
    head_from_row,
    lock_head,
    record_from_row,
    record_row,
    store_digest,
    store_head,
)
from toolgate.registry.database.tables import CHANGES, DIGESTS, RECORDS
from toolgate.registry.records.transaction import (
    RecordKey,
    chain_digest,
    check_store_revision,
    plan_transaction,
    record_after,
    start_digest,
)

_IDS_PER_QUERY: Final = 500
ROWS_AT_ONCE: Final = 500
"""Rows in memory while a whole log is read or written."""
CHANGES_AT_ONCE: Final = 1_000
"""Changes read at once, with their bodies. A transaction may have more and is never read in part."""


# One statement, so that it needs no transaction: the records, and the head as a row among them.
_LISTING: Final = union_all(select(RECORDS), HEAD_AS_RECORD)
_LISTING_OF_KIND: Final = union_all(
    select(RECORDS).where(RECORDS.c.kind == bindparam("of_kind")), HEAD_AS_RECORD
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUpdate:
    """What a replica must know to advance from its revision."""

    head: StoreHead
    digest: str
    """Of the log up to the replica's revision: it differs if the replica followed another history."""
    batches: Sequence[ChangeBatch]


def commit_writes(
    connection: Connection,
    writes: Sequence[RecordWrite],
    *,
    actor: str,
    at_ms: int,
    if_store_revision: int | None,
) -> ChangeBatch:
    """Commit `writes`. An empty batch means that nothing changed and there is no new revision."""
    head = lock_head(connection)
    check_store_revision(head.revision, if_store_revision)
    revision = head.revision + 1
    current, previous = _read_touched(connection, writes, head.revision)
    changes = plan_transaction(writes, current, revision=revision, actor=actor, at_ms=at_ms)
    if not changes:
        return ChangeBatch(revision=head.revision, digest=previous)
    # A replica of an earlier release wrote the previous revision without a digest: begin a new chain.
    digest = chain_digest(previous or start_digest(uuid4().hex), revision, changes)
    with pipeline_statements(connection):
        connection.execute(
            insert(CHANGES), [change_row(change, position) for position, change in enumerate(changes)]
        )
        _store_records(connection, changes)
        store_digest(connection, revision, digest)
        store_head(connection, replace(head, revision=revision))
    return ChangeBatch(revision=revision, changes=changes, digest=digest)


def pipeline_statements(connection: Connection) -> AbstractContextManager[object]:
    """Send the statements of the block without waiting for each, if the driver can.

    None may return rows. Errors are raised at the end, as the driver's.
    """
    pipeline = getattr(connection.connection.driver_connection, "pipeline", nullcontext)
    together: AbstractContextManager[object] = pipeline()
    return together


def read_record(connection: Connection, key: RecordKey) -> StoredRecord | None:
    """Return one record, or None."""
    query = select(RECORDS).where(RECORDS.c.kind == key.kind, RECORDS.c.id == key.id)
    row = connection.execute(query).one_or_none()
    return None if row is None else record_from_row(row)


def read_listing(connection: Connection, kind: Kind | None = None) -> RecordList:
    """Return all records (of a kind) at one revision."""
    rows = connection.execute(_LISTING if kind is None else _LISTING_OF_KIND, {"of_kind": kind}).all()
    heads = [row for row in rows if row.kind == HEAD_KIND]
    if not heads:
        raise NoResultFound("there is no head")
    head = head_from_listing(heads[0])
    # Sorted here, not by the engine: engines differ in collation.
    records = sorted(
        (record_from_row(row) for row in rows if row.kind != HEAD_KIND),
        key=lambda stored: (stored.kind, stored.id),
    )
    return RecordList(epoch=head.epoch, revision=head.revision, digest=head.digest, records=tuple(records))


def read_history(connection: Connection, key: RecordKey, *, limit: int) -> list[RecordChange]:
    """Return the changes of a record, newest first."""
    query = (
        select(CHANGES)
        .where(CHANGES.c.kind == key.kind, CHANGES.c.id == key.id)
        .order_by(CHANGES.c.revision.desc())
        .limit(limit)
    )
    return [change_from_row(row) for row in connection.execute(query)]


def read_batches(connection: Connection, after: int, upto: int) -> list[ChangeBatch]:
    """Return the transactions with `after < revision <= upto` that the log has, in order.

    It returns fewer if they have more than `CHANGES_AT_ONCE` changes, but always the first one whole.
    """
    upto = _find_page_end(connection, after, upto)
    query = (
        select(CHANGES, DIGESTS.c.digest)
        .outerjoin(DIGESTS, DIGESTS.c.revision == CHANGES.c.revision)
        .where(CHANGES.c.revision > after, CHANGES.c.revision <= upto)
        .order_by(CHANGES.c.revision, CHANGES.c.position)
    )
    batches = []
    for revision, group in groupby(connection.execute(query), key=lambda row: row.revision):
        rows = list(group)
        changes = tuple(map(change_from_row, rows))
        batches.append(ChangeBatch(revision=revision, changes=changes, digest=rows[0].digest or ""))
    return batches


def _find_page_end(connection: Connection, after: int, upto: int) -> int:
    """Return `upto`, or the last revision up to which the changes fit into one read."""
    if upto <= after + 1:
        return upto
    first_beyond = (
        select(CHANGES.c.revision)
        .where(CHANGES.c.revision > after, CHANGES.c.revision <= upto)
        .order_by(CHANGES.c.revision, CHANGES.c.position)
        .offset(CHANGES_AT_ONCE)
        .limit(1)
    )
    beyond = connection.execute(first_beyond).scalar_one_or_none()
    return upto if beyond is None else max(after + 1, beyond - 1)


def read_log_update(connection: Connection, after: int, *, page: int) -> LogUpdate:
    """Return the head and at most `page` transactions after `after`, from one snapshot."""
    row = connection.execute(HEAD_QUERY.add_columns(digest_at(after).label("digest_before"))).one()
    head = head_from_row(row)
    upto = min(head.revision, after + page)
    batches = read_batches(connection, after, upto) if after < upto else ()
    return LogUpdate(head=head, digest=row.digest_before or "", batches=batches)


def compact_log(connection: Connection, *, keep_revisions: int, cutoff_ms: int) -> int:
    """Delete changes older than both limits. Returns the oldest revision a watch can begin at."""
    head = lock_head(connection)
    # Only a prefix may go: a clock that was set back leaves changes that look old after young ones.
    youngest = select(func.min(CHANGES.c.revision)).where(CHANGES.c.at_ms > cutoff_ms)
    first_young = connection.execute(youngest).scalar_one_or_none() or head.revision + 1
    compacted = max(head.compacted, min(head.revision - keep_revisions, first_young - 1))
    if compacted > head.compacted:
        connection.execute(delete(CHANGES).where(CHANGES.c.revision <= compacted))
        # The newest of them stays: a watch may begin there.
        connection.execute(delete(DIGESTS).where(DIGESTS.c.revision < compacted))
        store_head(connection, replace(head, compacted=compacted))
    return compacted


def read_all_changes(connection: Connection) -> Iterator[RecordChange]:
    """Iterate over the whole log in order, with a few rows in memory at a time."""
    query = select(CHANGES).order_by(CHANGES.c.revision, CHANGES.c.position)
    return map(change_from_row, connection.execute(query.execution_options(yield_per=ROWS_AT_ONCE)))


def _read_touched(
    connection: Connection, writes: Sequence[RecordWrite], revision: int
) -> tuple[dict[RecordKey, StoredRecord], str]:
    """Return the records that `writes` touch, and the digest of the log up to `revision`, in one query for
    most."""
    digest = ""
    found = {}
    at_revision = select(digest_at(revision).label("digest")).subquery()
    for start in range(0, len(writes), _IDS_PER_QUERY):
        keys = [(write.kind, write.id) for write in writes[start : start + _IDS_PER_QUERY]]
        touched = tuple_(RECORDS.c.kind, RECORDS.c.id).in_(keys)
        query = select(at_revision.c.digest, RECORDS).select_from(at_revision.outerjoin(RECORDS, touched))
        for row in connection.execute(query):
            digest = row.digest or ""
            if row.id is not None:
                stored = record_from_row(row)
                found[RecordKey(stored.kind, stored.id)] = stored
    return found, digest


def _store_records(connection: Connection, changes: Sequence[RecordChange]) -> None:
    same_record = (RECORDS.c.kind == bindparam("of_kind"), RECORDS.c.id == bindparam("of_id"))
    replaced = [change for change in changes if change.before is not None]
    if replaced:
        keys = [{"of_kind": change.kind, "of_id": change.id} for change in replaced]
        connection.execute(delete(RECORDS).where(*same_record), keys)
    if rows := [record_row(stored) for stored in map(record_after, changes) if stored is not None]:
        connection.execute(insert(RECORDS), rows)
