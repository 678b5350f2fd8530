"""Sessions that were ended, so that every node knows of them."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0010"
down_revision: Final = "0009"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "ended_sessions",
        sa.Column("nonce", sa.String(64), primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ended_sessions_by_time", "ended_sessions", ["at_ms"])
