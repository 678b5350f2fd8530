"""Approvals of calls."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0006"
down_revision: Final = "0005"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "approvals",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("binding", sa.String(64), nullable=False),
        sa.Column("open_binding", sa.String(64)),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("server_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("arguments_digest", sa.String(64), nullable=False),
        sa.Column("definition", sa.String(64), nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("decided_by", sa.Text, nullable=False),
        sa.Column("decided_ms", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("used_ms", sa.BigInteger),
        sa.Column("rounds", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id", name="approvals_id"),
        sa.UniqueConstraint("open_binding", name="approvals_open"),
    )
    op.create_index("approvals_by_state", "approvals", ["state", "position"])
    op.create_index("approvals_by_binding", "approvals", ["binding"])
