"""The statements of the revisioned store, on every engine: rows, and the work of each transaction.

Every row of the registry has a checksum, so that damage is detected and never read as a different policy. A
database of a newer program is rejected unchanged. An older one is migrated in the given transaction. Never
opens, locks or commits: the engines do.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, cast
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import Connection, Row, Table, bindparam, delete, func, insert, select
from sqlalchemy.exc import NoResultFound

from toolgate.errors import Conflict, StartRefused
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.database import tables
from toolgate.registry.database.tables import CHANGES, DIGESTS, HEAD, RECORDS, SCHEMA_VERSION
from toolgate.registry.records import transaction
from toolgate.registry.records.transaction import RecordKey, decode_body, encode_body, start_digest

_IDS_PER_QUERY: Final = 500  # two parameters each: SQLite takes 32,766 in a statement, older ones 999
ROWS_AT_ONCE: Final = 500  # in memory while a whole log is read or written
CHANGES_AT_ONCE: Final = 1_000
"""The changes read at once, with their bodies. A larger transaction is still read as a whole."""


class DamagedRow(Exception):
    """A row differs from what was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHead:
    """The position and identity of a store."""

    schema_version: int
    epoch: str
    revision: int
    compacted: int
    digest: str = ""
    """The digest of the log up to `revision`. Empty if it was not read, or if a replica of an earlier release
    wrote the row."""


def create_tables(connection: Connection, *, epoch: str) -> None:
    tables.grow_tables(connection, 0)
    head = StoreHead(schema_version=SCHEMA_VERSION, epoch=epoch, revision=0, compacted=0)
    connection.execute(insert(HEAD), _encode_row(HEAD, head, id=1))
    store_digest(connection, 0, start_digest(epoch))


def read_head(connection: Connection) -> StoreHead:
    """Return the head. Waits for no writer."""
    return head_from_row(connection.execute(HEAD_QUERY).one())


def lock_head(connection: Connection) -> StoreHead:
    """Return the head, locked until the end of this transaction. Waits for other writers. It has no digest: a
    row read during the wait is outdated."""
    return head_from_row(connection.execute(select(HEAD).with_for_update()).one())


def store_head(connection: Connection, head: StoreHead) -> None:
    connection.execute(sa.update(HEAD), _encode_row(HEAD, head, id=1))


def digest_at(revision: sa.ColumnElement[int] | int) -> sa.ScalarSelect[str]:
    """Return the digest of the log up to `revision`, as part of a query."""
    return select(DIGESTS.c.digest).where(DIGESTS.c.revision == revision).scalar_subquery()


HEAD_QUERY: Final = select(HEAD, digest_at(HEAD.c.revision).label("digest"))
HEAD_KIND: Final = "head"  # the kind of the row that represents the head among records. No record has it
HEAD_AS_RECORD: Final = select(
    sa.literal(HEAD_KIND),
    HEAD.c.epoch,
    HEAD.c.revision,
    HEAD.c.compacted,
    func.coalesce(digest_at(HEAD.c.revision), ""),
    sa.cast(HEAD.c.schema_version, sa.Text),
    HEAD.c.checksum,
)
"""The head in the columns of a record."""


def head_from_listing(row: Row[Any]) -> StoreHead:
    """Decode a row of `HEAD_AS_RECORD`. Raises DamagedRow."""
    _, epoch, revision, compacted, digest, schema_version, checksum = tuple(row)
    head = StoreHead(
        schema_version=int(schema_version), epoch=epoch, revision=revision, compacted=compacted, digest=digest
    )
    if _encode_row(HEAD, head, id=1)["checksum"] != checksum:
        raise DamagedRow("the head does not match its checksum")
    return head


def read_digest(connection: Connection, revision: int) -> str:
    """Return the digest of the log up to `revision`; empty if unknown."""
    return connection.execute(select(digest_at(revision))).scalar_one() or ""


def store_digest(connection: Connection, revision: int, digest: str) -> None:
    # An upsert: if an older program, which did not know this table, was used after a downgrade, the row of a
    # discarded history may remain.
    tables.upsert(connection, DIGESTS, [{"revision": revision, "digest": digest}])


def record_row(stored: StoredRecord) -> dict[str, Any]:
    return _encode_row(RECORDS, stored, body=encode_body(stored.body))


def record_from_row(row: Row[Any]) -> StoredRecord:
    values = _verify_checksum(row, "record {kind} `{id}`")
    return StoredRecord(**values | {"body": decode_body(values["body"])})


def change_row(change: RecordChange, position: int) -> dict[str, Any]:
    """Encode a change, the `position`-th of its transaction."""
    before, after = (None if body is None else encode_body(body) for body in (change.before, change.after))
    return _encode_row(CHANGES, change, position=position, before=before, after=after)


def change_from_row(row: Row[Any]) -> RecordChange:
    values = _verify_checksum(row, "change {revision} of {kind} `{id}`")
    del values["position"]
    for name in ("before", "after"):
        values[name] = None if values[name] is None else decode_body(values[name])
    return RecordChange(**values)


def head_from_row(row: Row[Any]) -> StoreHead:
    values = _verify_checksum(row, "the head")
    del values["id"]
    return StoreHead(**values, digest=getattr(row, "digest", None) or "")


def _encode_row(table: Table, source: object, **others: object) -> dict[str, Any]:
    """Encode `source` in the order of the table's columns, which its checksum depends on."""
    names = [column.name for column in table.columns if column.name != "checksum"]
    values = {name: others[name] if name in others else getattr(source, name) for name in names}
    return {**values, "checksum": _checksum(values)}


def _verify_checksum(row: Row[Any], what: str) -> dict[str, Any]:
    values = dict(cast("Mapping[str, Any]", row._mapping))
    for name in ("digest", "digest_before"):
        values.pop(name, None)  # queries add it; it is in no checksum
    if values.pop("checksum") != _checksum(values):
        raise DamagedRow(f"{what.format(**values)} does not match its checksum")
    return values


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, separators=(",", ":")).encode())


def check_not_newer(version: int, *, what: str) -> None:
    """Raises StartRefused if a newer program wrote the tables."""
    if version > SCHEMA_VERSION:
        raise StartRefused(
            f"{what} was written by a newer Toolgate (schema {version}, this version knows {SCHEMA_VERSION})",
            hint="start the newer version again; nothing was changed",
        )


def migrate(connection: Connection, version: int) -> None:
    """Migrate the tables from `version` to this program's, in the open transaction."""
    tables.grow_tables(connection, version)
    head = read_head(connection)
    if version < DIGESTS.info["since"]:
        # The chain starts here with a random digest: earlier history cannot be compared.
        store_digest(connection, head.revision, uuid4().hex + uuid4().hex)
    store_head(connection, replace(head, schema_version=SCHEMA_VERSION))


# One statement, so that it needs no transaction: the records, and the head as a row among them.
_LISTING: Final = sa.union_all(select(RECORDS), HEAD_AS_RECORD)
_LISTING_OF_KIND: Final = sa.union_all(
    select(RECORDS).where(RECORDS.c.kind == bindparam("of_kind")), HEAD_AS_RECORD
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUpdate:
    """The data that a replica needs to advance from its revision."""

    head: StoreHead
    digest: str
    """The digest of the log up to the replica's revision. It differs if the replica followed another
    history."""
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
    if if_store_revision not in {None, head.revision}:
        raise Conflict(
            f"the registry is at revision {head.revision}, not {if_store_revision}",
            data={"store_revision": head.revision},
        )
    revision = head.revision + 1
    current, previous = _read_touched(connection, writes, head.revision)
    changes = transaction.plan_transaction(writes, current, revision=revision, actor=actor, at_ms=at_ms)
    if not changes:
        return ChangeBatch(revision=head.revision, digest=previous)
    # A replica of an earlier release wrote the previous revision without a digest: begin a new chain.
    digest = transaction.chain_digest(previous or start_digest(uuid4().hex), revision, changes)
    # Sent without waiting for each, if the driver can: none may return rows, and errors come at the end.
    pipeline = getattr(connection.connection.driver_connection, "pipeline", nullcontext)
    with pipeline():
        rows = [change_row(change, position) for position, change in enumerate(changes)]
        connection.execute(insert(CHANGES), rows)
        _store_records(connection, changes)
        store_digest(connection, revision, digest)
        store_head(connection, replace(head, revision=revision))
    return ChangeBatch(revision=revision, changes=changes, digest=digest)


def read_record(connection: Connection, kind: Kind, record_id: str) -> StoredRecord | None:
    query = select(RECORDS).where(RECORDS.c.kind == kind, RECORDS.c.id == record_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else record_from_row(row)


def read_listing(connection: Connection, kind: Kind | None = None) -> RecordList:
    """Return all records (of a kind) at one revision."""
    rows = connection.execute(_LISTING if kind is None else _LISTING_OF_KIND, {"of_kind": kind}).all()
    heads = [row for row in rows if row.kind == HEAD_KIND]
    if not heads:
        raise NoResultFound("the head is missing")
    head = head_from_listing(heads[0])
    found = (record_from_row(row) for row in rows if row.kind != HEAD_KIND)
    # Sorted here, not by the engine: engines differ in collation.
    records = tuple(sorted(found, key=lambda stored: (stored.kind, stored.id)))
    return RecordList(epoch=head.epoch, revision=head.revision, digest=head.digest, records=records)


def read_history(connection: Connection, kind: Kind, record_id: str, limit: int) -> list[RecordChange]:
    query = select(CHANGES).where(CHANGES.c.kind == kind, CHANGES.c.id == record_id)
    rows = connection.execute(query.order_by(CHANGES.c.revision.desc()).limit(limit))
    return [change_from_row(row) for row in rows]


def read_batches(connection: Connection, after: int, upto: int) -> list[ChangeBatch]:
    """Return the transactions with `after < revision <= upto` that the log has, in order. It returns fewer if
    they have more than `CHANGES_AT_ONCE` changes, but always the first one whole."""
    upto = _find_page_end(connection, after, upto)
    query = select(CHANGES, DIGESTS.c.digest).outerjoin(DIGESTS, DIGESTS.c.revision == CHANGES.c.revision)
    query = query.where(CHANGES.c.revision > after, CHANGES.c.revision <= upto)
    rows = connection.execute(query.order_by(CHANGES.c.revision, CHANGES.c.position))
    batches = []
    for revision, group in groupby(rows, key=lambda row: row.revision):
        of_revision = list(group)
        changes = tuple(map(change_from_row, of_revision))
        batches.append(ChangeBatch(revision=revision, changes=changes, digest=of_revision[0].digest or ""))
    return batches


def _find_page_end(connection: Connection, after: int, upto: int) -> int:
    """Return `upto`, or the last revision up to which the changes fit into one read."""
    if upto <= after + 1:
        return upto
    changes = select(CHANGES.c.revision).where(CHANGES.c.revision > after, CHANGES.c.revision <= upto)
    ordered = changes.order_by(CHANGES.c.revision, CHANGES.c.position)
    beyond = connection.execute(ordered.offset(CHANGES_AT_ONCE).limit(1)).scalar_one_or_none()
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
    # Only a prefix may go: after a clock was set back, changes that look old follow young ones.
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
    """Return the records that `writes` touch, and the digest of the log up to `revision`."""
    digest = ""
    found = {}
    at_revision = select(digest_at(revision).label("digest")).subquery()
    for start in range(0, len(writes), _IDS_PER_QUERY):
        keys = [(write.kind, write.id) for write in writes[start : start + _IDS_PER_QUERY]]
        touched = sa.tuple_(RECORDS.c.kind, RECORDS.c.id).in_(keys)
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
    after = map(transaction.record_after, changes)
    if rows := [record_row(stored) for stored in after if stored is not None]:
        connection.execute(insert(RECORDS), rows)
