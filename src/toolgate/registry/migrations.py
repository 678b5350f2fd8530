"""The steps from each release's tables to the next, by Alembic's operations.

A step is DDL for both engines, and only adds: replicas of the previous release keep working meanwhile.
`tables.py` must always say what all steps together make.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import BigInteger, Column, Connection, LargeBinary, String, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import TypeEngine

_JSON: Final = sa.JSON().with_variant(JSONB, "postgresql")
_POSITION: Final = BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(connection: Connection, version: int) -> None:
    """From the tables of `version` (0: none) to the newest, in the transaction that is open."""
    op = Operations(MigrationContext.configure(connection))
    for step in STEPS[version:]:
        step(op)
    if not sa.inspect(connection).has_table("alembic_version"):  # release 0.1 kept no account of steps
        key = sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc")
        op.create_table("alembic_version", Column("version_num", String(32), nullable=False), key)
    account = sa.table("alembic_version", sa.column("version_num"))
    connection.execute(sa.delete(account))
    connection.execute(sa.insert(account), {"version_num": f"{len(STEPS):04}"})


def _required(kind: TypeEngine[Any] | type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _create_registry(op: Operations) -> None:
    """Head, records and the change log: the tables of release 0.1."""
    op.create_table(
        "head",
        Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        Column("schema_version", BigInteger, nullable=False),
        Column("epoch", String(32), nullable=False),
        *_required(BigInteger, "revision", "compacted", "checksum"),
    )
    op.create_table(
        "records",
        Column("kind", String(16), primary_key=True),
        Column("id", String(64), primary_key=True),
        *_required(BigInteger, "revision", "updated_at_ms"),
        *_required(Text, "actor", "body"),
        Column("checksum", BigInteger, nullable=False),
    )
    op.create_table(
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
    )
    op.create_index("changes_by_record", "changes", ["kind", "id", "revision"])


def _create_reports(op: Operations) -> None:
    """What nodes report: the state of each node, and the definitions of each server."""
    for name in ("reports", "definitions"):
        op.create_table(
            name,
            Column("id", Text, primary_key=True),
            Column("at_ms", BigInteger, nullable=False),
            Column("body", LargeBinary, nullable=False),
        )


def _create_catalog(op: Operations) -> None:
    """The catalog: what is in the packages, and what its rows were made of.

    Only PostgreSQL has arrays, and indexes into them and into JSON.
    """
    op.create_table(
        "tool_catalog",
        Column("id", sa.Uuid, primary_key=True),
        Column("package_id", String(255), nullable=False),
        *_required(Text, "package_name", "package_description", "category"),
        Column("tags", sa.JSON().with_variant(ARRAY(Text), "postgresql"), nullable=False),
        *_required(String(255), "tool_name", "full_name"),
        *_required(Text, "title", "description"),
        Column("input_schema", _JSON),
        Column("output_schema", _JSON),
        Column("annotations", _JSON),
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
    )
    op.create_index("tool_catalog_category", "tool_catalog", ["category"])
    op.create_table(
        "catalog_sources",
        Column("package_id", String(255), primary_key=True),
        Column("made_from", Text, nullable=False),
        Column("at_ms", BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("tool_catalog_tags", "tool_catalog", ["tags"], postgresql_using="gin")
        op.create_index(
            "tool_catalog_input_schema",
            "tool_catalog",
            ["input_schema"],
            postgresql_using="gin",
            postgresql_ops={"input_schema": "jsonb_path_ops"},
        )


def _create_pinned_definitions(op: Operations) -> None:
    op.create_table(
        "pinned_definitions",
        Column("digest", String(64), primary_key=True),
        Column("definition", LargeBinary, nullable=False),
    )


def _create_invocations(op: Operations) -> None:
    """The queue of invocations, and what they write."""
    op.create_table(
        "invocations",
        Column("position", _POSITION, primary_key=True),
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
    )
    op.create_index("invocations_by_state", "invocations", ["state", "task_id", "position"])
    op.create_index("invocations_by_task", "invocations", ["task_id", "position"])
    op.create_index("invocations_by_principal", "invocations", ["principal_id", "position"])
    op.create_table(
        "invocation_lines",
        Column("invocation", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("body", LargeBinary, nullable=False),
    )


def _create_approvals(op: Operations) -> None:
    op.create_table(
        "approvals",
        Column("position", _POSITION, primary_key=True),
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
        sa.UniqueConstraint("id", name="approvals_id"),
        sa.UniqueConstraint("open_binding", name="approvals_open"),
    )
    op.create_index("approvals_by_state", "approvals", ["state", "position"])
    op.create_index("approvals_by_binding", "approvals", ["binding"])


def _create_quotas(op: Operations) -> None:
    op.create_table(
        "spending",
        Column("kind", String(16), primary_key=True),
        Column("id", String(64), primary_key=True),
        Column("budget", String(32), primary_key=True),
        *_required(BigInteger, "window_ms", "used"),
    )


def _add_approval_notices(op: Operations) -> None:
    """Which approvals had their notice delivered, and when the next attempt is due."""
    op.add_column("approvals", Column("notices", BigInteger, nullable=False, server_default="0"))
    op.add_column("approvals", Column("notice_ms", BigInteger, nullable=False, server_default="0"))
    op.add_column("approvals", Column("notified_ms", BigInteger))


def _create_digests(op: Operations) -> None:
    """The digest of the log, by revision. A log without digests begins a chain at its current revision.

    The first digest is random: what was before it cannot be compared.
    """
    digests = op.create_table(
        "digests",
        Column("revision", BigInteger, primary_key=True, autoincrement=False),
        Column("digest", String(64), nullable=False),
    )
    head = sa.table("head", sa.column("revision"))
    newest = op.get_bind().execute(sa.select(head.c.revision)).scalar_one_or_none()
    if newest is not None:
        op.bulk_insert(digests, [{"revision": newest, "digest": uuid4().hex + uuid4().hex}])


def _create_ended_sessions(op: Operations) -> None:
    """Sessions that were ended, so that every node knows of them."""
    op.create_table(
        "ended_sessions",
        Column("nonce", String(64), primary_key=True),
        *_required(BigInteger, "until_ms", "at_ms"),
    )
    op.create_index("ended_sessions_by_time", "ended_sessions", ["at_ms"])


STEPS: Final[Sequence[Callable[[Operations], None]]] = (
    _create_registry,
    _create_reports,
    _create_catalog,
    _create_pinned_definitions,
    _create_invocations,
    _create_approvals,
    _create_quotas,
    _add_approval_notices,
    _create_digests,
    _create_ended_sessions,
)
"""The first makes the tables of version 1, each other those of the next version."""
