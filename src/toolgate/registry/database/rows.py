"""Heads, records and changes as rows, and how a database gets the tables this program needs.

Every row of the registry carries a checksum, so that damage is found and named, and never read as some other
policy. A database of a newer program is refused and never touched. An older one is migrated in the given
transaction, by Alembic. Never opens, locks or commits: the engines do.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Text,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy import cast as sql_cast

from toolgate.errors import StartRefused
from toolgate.lazy_modules import load_lazily
from toolgate.model.revisions import RecordChange, StoredRecord
from toolgate.registry.database.tables import (
    _MIGRATED,
    _POSTGRESQL_INDEXES,
    DIGESTS,
    HEAD,
    METADATA,
    SCHEMA_VERSION,
    upsert,
)
from toolgate.registry.records.transaction import decode_body, encode_body, start_digest

_DIGESTS_IN_ROWS: Final = ("digest", "digest_before")
"""Columns that queries add to rows of other tables. Checksums do not include them."""


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
    """Of the log up to `revision`. Empty if it was not read, or a replica of an earlier release wrote it."""


def create_tables(connection: Connection, *, epoch: str) -> None:
    """Create the tables of an empty store."""
    METADATA.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        for index in _POSTGRESQL_INDEXES:
            connection.execute(index)
    connection.execute(insert(_MIGRATED), {"version_num": f"{SCHEMA_VERSION:04}"})
    head = StoreHead(schema_version=SCHEMA_VERSION, epoch=epoch, revision=0, compacted=0)
    connection.execute(insert(HEAD), _head_row(head))
    store_digest(connection, 0, start_digest(epoch))


def read_head(connection: Connection) -> StoreHead:
    """Return the head. Waits for no writer."""
    return head_from_row(connection.execute(HEAD_QUERY).one())


def lock_head(connection: Connection) -> StoreHead:
    """Return the head, locked until the end of this transaction. Waits for other writers.

    It has no digest: a row that was read while this waited is outdated.
    """
    return head_from_row(connection.execute(select(HEAD).with_for_update()).one())


def store_head(connection: Connection, head: StoreHead) -> None:
    """Store the head."""
    connection.execute(update(HEAD), _head_row(head))


def digest_at(revision: ColumnElement[int] | int) -> ScalarSelect[str]:
    """Return the digest of the log up to `revision`, as part of a query."""
    return select(DIGESTS.c.digest).where(DIGESTS.c.revision == revision).scalar_subquery()


HEAD_QUERY: Final = select(HEAD, digest_at(HEAD.c.revision).label("digest"))


HEAD_KIND: Final = "head"
"""The kind of the row that represents the head among records. No record has it."""


HEAD_AS_RECORD: Final = select(
    literal(HEAD_KIND),
    HEAD.c.epoch,
    HEAD.c.revision,
    HEAD.c.compacted,
    func.coalesce(digest_at(HEAD.c.revision), ""),
    sql_cast(HEAD.c.schema_version, Text),
    HEAD.c.checksum,
)
"""The head in the columns of a record."""


def head_from_listing(row: Row[Any]) -> StoreHead:
    """Decode a row of `HEAD_AS_RECORD`. Raises DamagedRow."""
    _, epoch, revision, compacted, digest, schema_version, checksum = tuple(row)
    head = StoreHead(
        schema_version=int(schema_version),
        epoch=epoch,
        revision=revision,
        compacted=compacted,
        digest=digest,
    )
    if _head_row(head)["checksum"] != checksum:
        raise DamagedRow("the head does not match its checksum")
    return head


def read_digest(connection: Connection, revision: int) -> str:
    """Return the digest of the log up to `revision`; empty if it is not known."""
    return connection.execute(select(digest_at(revision))).scalar_one() or ""


def store_digest(connection: Connection, revision: int, digest: str) -> None:
    """Store the digest of the log up to `revision`."""
    # An upsert: a digest may remain from a history that an older program took back, which did not know this
    # table.
    upsert(connection, DIGESTS, [{"revision": revision, "digest": digest}])


def record_row(stored: StoredRecord) -> dict[str, Any]:
    """Encode a record as a row."""
    return _add_checksum(
        {
            "kind": stored.kind,
            "id": stored.id,
            "revision": stored.revision,
            "updated_at_ms": stored.updated_at_ms,
            "actor": stored.actor,
            "body": encode_body(stored.body),
        }
    )


def record_from_row(row: Row[Any]) -> StoredRecord:
    """Decode a row as a record. Raises DamagedRow."""
    values = _verify_checksum(row, "record {kind} `{id}`")
    return StoredRecord(**values | {"body": decode_body(values["body"])})


def change_row(change: RecordChange, position: int) -> dict[str, Any]:
    """Encode a change, the `position`-th of its transaction, as a row."""
    return _add_checksum(
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


def change_from_row(row: Row[Any]) -> RecordChange:
    """Decode a row as a change. Raises DamagedRow."""
    values = _verify_checksum(row, "change {revision} of {kind} `{id}`")
    del values["position"]
    bodies = {
        name: None if values[name] is None else decode_body(values[name]) for name in ("before", "after")
    }
    return RecordChange(**values | bodies)


def head_from_row(row: Row[Any]) -> StoreHead:
    """Decode a row as the head. Raises DamagedRow."""
    values = _verify_checksum(row, "the head")
    del values["id"]
    return StoreHead(**values, digest=getattr(row, "digest", None) or "")


def _head_row(head: StoreHead) -> dict[str, Any]:
    values = asdict(head)
    del values["digest"]
    return _add_checksum({"id": 1, **values})


def _add_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "checksum": _checksum(values)}


def _verify_checksum(row: Row[Any], what: str) -> dict[str, Any]:
    values = dict(cast("Mapping[str, Any]", row._mapping))
    for name in _DIGESTS_IN_ROWS:
        values.pop(name, None)
    if values.pop("checksum") != _checksum(values):
        raise DamagedRow(f"{what.format(**values)} does not match its checksum")
    return values


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, separators=(",", ":")).encode())


def check_not_newer(version: int, *, what: str) -> None:
    """Raises StartRefused if a newer program wrote the tables."""
    if version > SCHEMA_VERSION:
        raise StartRefused(
            f"{what} was written by a newer Toolgate (schema {version}, this one knows {SCHEMA_VERSION})",
            hint="start the newer version again; nothing was touched",
        )


def is_older(version: int) -> bool:
    """Whether the tables need a migration."""
    return version < SCHEMA_VERSION


def migrate(connection: Connection, version: int) -> None:
    """Migrate the tables from `version` to this program's, in the open transaction."""
    # Not imported above: Alembic takes longer to load than all of the registry, and is needed once a release.
    load_lazily("toolgate.registry.migrations").upgrade(connection, version)
    store_head(connection, replace(read_head(connection), schema_version=SCHEMA_VERSION))
