"""The tables of a store in SQL, and the statements over them, the same for every engine.

Nothing here opens, locks or commits: that is the engine's own module. Every row carries a checksum, so
that damage is found and named rather than read as some other policy.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    MetaData,
    Row,
    SmallInteger,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from toolgate.model.revisions import Batch, Body, Change, Kind, Listing, Stored, Write
from toolgate.registry.transaction import (
    RecordKey,
    check_store_revision,
    decode_body,
    encode_body,
    plan_transaction,
)

SCHEMA_VERSION: Final = 1
_IDS_PER_QUERY: Final = 500

METADATA: Final = MetaData()

# One row. It is read for update first in every transaction, which puts writers in a line on any engine.
# `schema_version` keeps its name and place for ever: an older program must be able to read it.
HEAD: Final = Table(
    "head",
    METADATA,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("schema_version", BigInteger, nullable=False),
    Column("epoch", String(32), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("compacted", BigInteger, nullable=False),
    Column("checksum", BigInteger, nullable=False),
)
RECORDS: Final = Table(
    "records",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("updated_at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("checksum", BigInteger, nullable=False),
)
CHANGES: Final = Table(
    "changes",
    METADATA,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("id", String(64), nullable=False),
    Column("operation", String(8), nullable=False),
    Column("actor", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("checksum", BigInteger, nullable=False),
    Index("changes_by_record", "kind", "id", "revision"),
)


class Damaged(Exception):
    """A row that is not as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a store stands."""

    schema_version: int
    epoch: str
    revision: int
    compacted: int


def create_tables(connection: Connection, *, epoch: str) -> None:
    """An empty store."""
    METADATA.create_all(connection, checkfirst=False)
    head = Head(schema_version=SCHEMA_VERSION, epoch=epoch, revision=0, compacted=0)
    connection.execute(insert(HEAD), _head_row(head))


def read_head(connection: Connection) -> Head:
    """Where the store stands. Inside a writing transaction this also waits for its turn."""
    row = connection.execute(select(HEAD).with_for_update()).one()
    values = _checked(row, "the head")
    del values["id"]
    return Head(**values)


def commit_writes(
    connection: Connection,
    writes: Sequence[Write],
    *,
    actor: str,
    at_ms: int,
    if_store_revision: int | None,
) -> Batch:
    """Put `writes` into the tables. A batch without changes: there was nothing to do, nor a new revision."""
    head = read_head(connection)
    check_store_revision(head.revision, if_store_revision)
    revision = head.revision + 1
    current = _read_touched(connection, writes)
    changes = plan_transaction(writes, current, revision=revision, actor=actor, at_ms=at_ms)
    if not changes:
        return Batch(revision=head.revision)
    connection.execute(
        insert(CHANGES), [_change_row(change, position) for position, change in enumerate(changes)]
    )
    _store_records(connection, changes)
    connection.execute(update(HEAD), _head_row(replace(head, revision=revision)))
    return Batch(revision=revision, changes=changes)


def read_record(connection: Connection, key: RecordKey) -> Stored | None:
    """One record, or None."""
    query = select(RECORDS).where(RECORDS.c.kind == key.kind, RECORDS.c.id == key.id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _stored(row)


def read_listing(connection: Connection, kind: Kind | None = None) -> Listing:
    """All records (of a kind) and the revision they are at."""
    head = read_head(connection)
    query = select(RECORDS) if kind is None else select(RECORDS).where(RECORDS.c.kind == kind)
    # Sorted here, not by the engine: engines differ in collation.
    records = sorted(map(_stored, connection.execute(query)), key=lambda stored: (stored.kind, stored.id))
    return Listing(epoch=head.epoch, revision=head.revision, records=tuple(records))


def read_history(connection: Connection, key: RecordKey, *, limit: int) -> list[Change]:
    """The newest changes of a record, newest first."""
    query = (
        select(CHANGES)
        .where(CHANGES.c.kind == key.kind, CHANGES.c.id == key.id)
        .order_by(CHANGES.c.revision.desc())
        .limit(limit)
    )
    return [_change(row) for row in connection.execute(query)]


def read_batches(connection: Connection, after: int, upto: int) -> list[Batch]:
    """The transactions with `after < revision <= upto`, in order, as far as the log has them."""
    query = (
        select(CHANGES)
        .where(CHANGES.c.revision > after, CHANGES.c.revision <= upto)
        .order_by(CHANGES.c.revision, CHANGES.c.position)
    )
    changes = map(_change, connection.execute(query))
    return [
        Batch(revision=revision, changes=tuple(group))
        for revision, group in groupby(changes, key=lambda change: change.revision)
    ]


def compact_log(connection: Connection, *, keep_revisions: int, cutoff_ms: int) -> int:
    """Forget what is older than both; returns the oldest revision one can still watch from."""
    head = read_head(connection)
    # Only a prefix may go: a clock that was set back leaves old-looking lines after young ones.
    youngest = select(func.min(CHANGES.c.revision)).where(CHANGES.c.at_ms > cutoff_ms)
    first_young = connection.execute(youngest).scalar_one_or_none() or head.revision + 1
    compacted = max(head.compacted, min(head.revision - keep_revisions, first_young - 1))
    connection.execute(delete(CHANGES).where(CHANGES.c.revision <= compacted))
    connection.execute(update(HEAD), _head_row(replace(head, compacted=compacted)))
    return compacted


def _read_touched(connection: Connection, writes: Iterable[Write]) -> dict[RecordKey, Stored]:
    ids: dict[Kind, list[str]] = {}
    for write in writes:
        ids.setdefault(write.kind, []).append(write.id)
    rows = (
        row
        for kind, of_kind in ids.items()
        for start in range(0, len(of_kind), _IDS_PER_QUERY)
        for row in connection.execute(
            select(RECORDS).where(
                RECORDS.c.kind == kind, RECORDS.c.id.in_(of_kind[start : start + _IDS_PER_QUERY])
            )
        )
    )
    return {RecordKey(stored.kind, stored.id): stored for stored in map(_stored, rows)}


def _store_records(connection: Connection, changes: Sequence[Change]) -> None:
    same_record = (RECORDS.c.kind == bindparam("of_kind"), RECORDS.c.id == bindparam("of_id"))
    replaced = [change for change in changes if change.before is not None]
    if replaced:
        keys = [{"of_kind": change.kind, "of_id": change.id} for change in replaced]
        connection.execute(delete(RECORDS).where(*same_record), keys)
    if rows := [_record_row(change, change.after) for change in changes if change.after is not None]:
        connection.execute(insert(RECORDS), rows)


def _head_row(head: Head) -> dict[str, Any]:
    return _with_checksum({"id": 1, **asdict(head)})


def _record_row(change: Change, body: Body) -> dict[str, Any]:
    return _with_checksum(
        {
            "kind": change.kind,
            "id": change.id,
            "revision": change.revision,
            "updated_at_ms": change.at_ms,
            "actor": change.actor,
            "body": encode_body(body),
        }
    )


def _change_row(change: Change, position: int) -> dict[str, Any]:
    return _with_checksum(
        {
            "revision": change.revision,
            "position": position,
            "kind": change.kind,
            "id": change.id,
            "operation": change.operation,
            "actor": change.actor,
            "at_ms": change.at_ms,
            "before": None if change.before is None else encode_body(change.before),
            "after": None if change.after is None else encode_body(change.after),
        }
    )


def _stored(row: Row[Any]) -> Stored:
    values = _checked(row, "record {kind} `{id}`")
    return Stored(**values | {"body": decode_body(values["body"])})


def _change(row: Row[Any]) -> Change:
    values = _checked(row, "change {revision} of {kind} `{id}`")
    del values["position"]
    bodies = {
        name: None if values[name] is None else decode_body(values[name]) for name in ("before", "after")
    }
    return Change(**values | bodies)


def _with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "checksum": _checksum(values)}


def _checked(row: Row[Any], what: str) -> dict[str, Any]:
    values = dict(cast("Mapping[str, Any]", row._mapping))
    if values.pop("checksum") != _checksum(values):
        raise Damaged(f"{what.format(**values)} does not match its checksum")
    return values


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, separators=(",", ":")).encode())
