"""The queue of invocations, and what they write."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0005"
down_revision: Final = "0004"


def upgrade() -> None:
    """Make their tables."""
    op.create_table(
        "invocations",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("principal_id", sa.Text, nullable=False),
        sa.Column("principal", sa.LargeBinary, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("retries", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("input_digest", sa.String(64), nullable=False),
        sa.Column("input", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("losses", sa.BigInteger, nullable=False),
        sa.Column("node_id", sa.Text, nullable=False),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("lease_until_ms", sa.BigInteger),
        sa.Column("is_cancel_asked", sa.Boolean, nullable=False),
        sa.Column("heard", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("ending", sa.LargeBinary),
        sa.Column("stdout", sa.LargeBinary),
        sa.Column("stderr", sa.LargeBinary),
        sa.UniqueConstraint("id", name="invocations_id"),
        sa.UniqueConstraint("principal_id", "task_id", "idempotency_key", name="invocations_key"),
    )
    op.create_index("invocations_by_state", "invocations", ["state", "task_id", "position"])
    op.create_index("invocations_by_task", "invocations", ["task_id", "position"])
    op.create_index("invocations_by_principal", "invocations", ["principal_id", "position"])
    op.create_table(
        "invocation_lines",
        sa.Column("invocation", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
