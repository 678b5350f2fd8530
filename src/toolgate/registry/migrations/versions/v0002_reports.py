"""What nodes report: the state of each node, and the definitions of each server."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0002"
down_revision: Final = "0001"


def upgrade() -> None:
    """Make their tables."""
    for name in ("reports", "definitions"):
        op.create_table(
            name,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("at_ms", sa.BigInteger, nullable=False),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
