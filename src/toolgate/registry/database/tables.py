"""The tables of a store, the same for every engine, each with the schema version that added it.

They only grow, so that replicas of the previous release keep working while a database is migrated.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Index, LargeBinary, String, Table, Text, text
from sqlalchemy.types import TypeDecorator, TypeEngine

SCHEMA_VERSION: Final = 10  # rises with each added table or column, which states it in `since`
METADATA: Final = sa.MetaData()


class _BinaryJson(TypeDecorator[Any]):
    """JSON, in the binary form of an engine that has one.

    It is looked up in the engine: naming PostgreSQL's type would load all its drivers, for everyone.
    """

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        known: Mapping[str, type[sa.JSON]] = getattr(dialect, "ischema_names", {})
        return dialect.type_descriptor(known.get("jsonb", sa.JSON)(none_as_null=True))


def _required(kind: TypeEngine[Any] | type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _table(name: str, *items: sa.schema.SchemaItem, since: int) -> Table:
    return Table(name, METADATA, *items, info={"since": since})


# One row. Every transaction that writes locks it first, so writers queue on any engine.
# `schema_version` keeps its name and place for ever: an older program must be able to read it.
HEAD: Final = _table(
    "head",
    Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    Column("schema_version", BigInteger, nullable=False),
    Column("epoch", String(32), nullable=False),
    *_required(BigInteger, "revision", "compacted", "checksum"),
    since=1,
)
RECORDS: Final = _table(
    "records",
    Column("kind", String(16), primary_key=True),
    Column("id", String(64), primary_key=True),
    *_required(BigInteger, "revision", "updated_at_ms"),
    *_required(Text, "actor", "body"),
    Column("checksum", BigInteger, nullable=False),
    since=1,
)
CHANGES: Final = _table(
    "changes",
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
    since=1,
)
# The digest of the log up to each of its revisions, and up to the one before it. A separate table, since
# replicas of earlier releases write revisions without a digest and check the columns of a row by their
# checksum.
DIGESTS: Final = _table(
    "digests",
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    since=9,
)
# Sessions that their clients ended, until their ids expire.
ENDED_SESSIONS: Final = _table(
    "ended_sessions",
    Column("nonce", String(64), primary_key=True),
    *_required(BigInteger, "until_ms", "at_ms"),
    Index("ended_sessions_by_time", "at_ms"),
    since=10,
)
# The newest report of each node and definitions of each server. They are not policy, and nodes repeat them.
REPORTS, DEFINITIONS = (
    _table(
        name,
        Column("id", Text, primary_key=True),
        Column("at_ms", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        since=2,
    )
    for name in ("reports", "definitions")
)
# The tools of packages, a projection of records, manifests and definitions.
TOOL_CATALOG: Final = _table(
    "tool_catalog",
    Column("id", sa.Uuid, primary_key=True),
    Column("package_id", String(255), nullable=False),
    *_required(Text, "package_name", "package_description", "category"),
    Column("tags", sa.JSON().with_variant(sa.ARRAY(Text), "postgresql"), nullable=False),
    *_required(String(255), "tool_name", "full_name"),
    *_required(Text, "title", "description"),
    Column("input_schema", _BinaryJson),
    Column("output_schema", _BinaryJson),
    Column("annotations", _BinaryJson),
    Column("is_read_only", sa.Boolean, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("schema_version", String(10), nullable=False),
    Column("source", String(20), nullable=False),
    Column("schema_bytes", BigInteger, nullable=False),
    Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    Column("body", LargeBinary, nullable=False),
    sa.UniqueConstraint("package_id", "tool_name", name="tool_catalog_tool"),
    sa.UniqueConstraint("full_name", name="tool_catalog_full_name"),
    sa.CheckConstraint("schema_bytes <= 262144", name="tool_catalog_schema_size"),
    Index("tool_catalog_category", "category"),
    since=3,
)
# As text: an index with options of an engine would load that engine, for everyone.
_POSTGRESQL_INDEXES: Final = (
    text("CREATE INDEX tool_catalog_tags ON tool_catalog USING gin (tags)"),
    text("CREATE INDEX tool_catalog_input_schema ON tool_catalog USING gin (input_schema jsonb_path_ops)"),
)
CATALOG_SOURCES: Final = _table(
    "catalog_sources",
    Column("package_id", String(255), primary_key=True),
    Column("made_from", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    since=3,
)
# Approved definitions and what replaced them, by digest: a digest only ever means one definition.
PINNED_DEFINITIONS: Final = _table(
    "pinned_definitions",
    Column("digest", String(64), primary_key=True),
    Column("definition", LargeBinary, nullable=False),
    since=4,
)
# The queue of invocations and its history. `position` is their order.
INVOCATIONS: Final = _table(
    "invocations",
    Column("position", BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *_required(Text, "id", "task_id", "principal_id"),
    Column("principal", LargeBinary, nullable=False),
    *_required(BigInteger, "revision", "created_ms", "retries"),
    Column("idempotency_key", Text),
    Column("input_digest", String(64), nullable=False),
    Column("input", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    *_required(BigInteger, "attempt", "losses"),
    Column("node_id", Text, nullable=False),
    Column("started_ms", BigInteger),
    Column("lease_until_ms", BigInteger),
    Column("is_cancel_asked", sa.Boolean, nullable=False),
    *_required(BigInteger, "heard", "lines"),
    Column("ended_ms", BigInteger),
    Column("ending", LargeBinary),
    Column("stdout", LargeBinary),
    Column("stderr", LargeBinary),
    sa.UniqueConstraint("id", name="invocations_id"),
    sa.UniqueConstraint("principal_id", "task_id", "idempotency_key", name="invocations_key"),
    Index("invocations_by_state", "state", "task_id", "position"),
    Index("invocations_by_task", "task_id", "position"),
    Index("invocations_by_principal", "principal_id", "position"),
    since=5,
)
INVOCATION_LINES: Final = _table(
    "invocation_lines",
    Column("invocation", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
    since=5,
)
# Approvals of calls. A repeated request joins the one with its `open_binding`.
APPROVALS: Final = _table(
    "approvals",
    Column("position", BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False),
    Column("binding", String(64), nullable=False),
    Column("open_binding", String(64)),
    *_required(Text, "principal", "task_id", "server_id", "tool"),
    *_required(String(64), "arguments_digest", "definition"),
    Column("arguments", LargeBinary, nullable=False),
    *_required(Text, "why", "session", "door"),
    *_required(BigInteger, "created_ms", "expires_ms"),
    Column("state", String(16), nullable=False),
    Column("decided_by", Text, nullable=False),
    Column("decided_ms", BigInteger),
    Column("reason", Text, nullable=False),
    Column("used_ms", BigInteger),
    Column("rounds", BigInteger, nullable=False),
    Column("notices", BigInteger, nullable=False, server_default="0", info={"since": 8}),
    Column("notice_ms", BigInteger, nullable=False, server_default="0", info={"since": 8}),
    Column("notified_ms", BigInteger, info={"since": 8}),
    sa.UniqueConstraint("id", name="approvals_id"),
    sa.UniqueConstraint("open_binding", name="approvals_open"),
    Index("approvals_by_state", "state", "position"),
    Index("approvals_by_binding", "binding"),
    since=6,
)
# The usage of each quota of each holder, in its newest window.
SPENDING: Final = _table(
    "spending",
    Column("kind", String(16), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("budget", String(32), primary_key=True),
    *_required(BigInteger, "window_ms", "used"),
    since=7,
)


def grow_tables(connection: Connection, version: int) -> None:
    """Add the tables and columns that are newer than `version`; 0: all of them."""
    for table in METADATA.sorted_tables:
        if table.info["since"] > version:
            table.create(connection)
            continue
        for column in table.columns:
            if column.info.get("since", 0) > version:
                added = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {added}"))
    if connection.dialect.name == "postgresql" and TOOL_CATALOG.info["since"] > version:
        for index in _POSTGRESQL_INDEXES:
            connection.execute(index)


def pick_fields(source: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a value or a row by name, to be columns or fields of the same name."""
    return {name: getattr(source, name) for name in names}


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert `rows`. Existing rows with the same key stay unchanged. Returns the number of inserted rows."""
    return connection.execute(_insert_statement(table, tuple(rows[0]), "DO NOTHING"), list(rows)).rowcount


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert `rows`. Each replaces the row with its primary key."""
    if rows:
        keys = [column.name for column in table.primary_key]
        values = ", ".join(f"{name} = excluded.{name}" for name in rows[0] if name not in keys)
        action = f"({', '.join(keys)}) DO UPDATE SET {values}"
        connection.execute(_insert_statement(table, tuple(rows[0]), action), list(rows))


@cache
def _insert_statement(table: Table, names: tuple[str, ...], on_conflict: str) -> sa.TextClause:
    # As text: both engines know this statement, and SQLAlchemy has one for each, which would load that
    # engine.
    values = ", ".join(f":{name}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608 (names of columns)
        f"ON CONFLICT {on_conflict}"
    )
