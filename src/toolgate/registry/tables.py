"""The tables of a store in SQL and their rows, the same for every engine.

Nothing here opens, locks or commits: that is the engine's own module. Every row of the registry carries a
checksum, so that damage is found and named rather than read as some other policy.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    SmallInteger,
    String,
    Table,
    Text,
    insert,
    select,
    update,
)

from toolgate.model.revisions import Change, Stored
from toolgate.registry.transaction import decode_body, encode_body

SCHEMA_VERSION: Final = 2
"""The number of the newest migration. A change to the tables is a migration too; a test compares the two."""

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
# What nodes say, each by its own id, the newest word only. It is no policy, and can be said again.
REPORTS: Final = Table(
    "reports",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
DEFINITIONS: Final = Table(
    "definitions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
# Alembic's own, as Alembic makes it.
_MIGRATED: Final = Table(
    "alembic_version",
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
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
    connection.execute(insert(_MIGRATED), {"version_num": f"{SCHEMA_VERSION:04}"})
    head = Head(schema_version=SCHEMA_VERSION, epoch=epoch, revision=0, compacted=0)
    connection.execute(insert(HEAD), _head_row(head))


def read_head(connection: Connection) -> Head:
    """Where the store stands; waits for nobody."""
    return _head(connection.execute(select(HEAD)).one())


def lock_head(connection: Connection) -> Head:
    """Where the store stands, and will until the end of this transaction. Waits for other writers."""
    return _head(connection.execute(select(HEAD).with_for_update()).one())


def store_head(connection: Connection, head: Head) -> None:
    """Move the store to where `head` says."""
    connection.execute(update(HEAD), _head_row(head))


def record_row(stored: Stored) -> dict[str, Any]:
    """A record as a row."""
    return _with_checksum(
        {
            "kind": stored.kind,
            "id": stored.id,
            "revision": stored.revision,
            "updated_at_ms": stored.updated_at_ms,
            "actor": stored.actor,
            "body": encode_body(stored.body),
        }
    )


def stored_of(row: Row[Any]) -> Stored:
    """A row as a record. Raises Damaged."""
    values = _checked(row, "record {kind} `{id}`")
    return Stored(**values | {"body": decode_body(values["body"])})


def change_row(change: Change, position: int) -> dict[str, Any]:
    """A change, the `position`-th of its transaction, as a row."""
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


def change_of(row: Row[Any]) -> Change:
    """A row as a change. Raises Damaged."""
    values = _checked(row, "change {revision} of {kind} `{id}`")
    del values["position"]
    bodies = {
        name: None if values[name] is None else decode_body(values[name]) for name in ("before", "after")
    }
    return Change(**values | bodies)


def _head(row: Row[Any]) -> Head:
    values = _checked(row, "the head")
    del values["id"]
    return Head(**values)


def _head_row(head: Head) -> dict[str, Any]:
    return _with_checksum({"id": 1, **asdict(head)})


def _with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "checksum": _checksum(values)}


def _checked(row: Row[Any], what: str) -> dict[str, Any]:
    values = dict(cast("Mapping[str, Any]", row._mapping))
    if values.pop("checksum") != _checksum(values):
        raise Damaged(f"{what.format(**values)} does not match its checksum")
    return values


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, separators=(",", ":")).encode())
