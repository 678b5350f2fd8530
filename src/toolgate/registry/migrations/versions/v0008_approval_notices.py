"""Which approvals had their notice delivered, and when the next attempt is due."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0008"
down_revision: Final = "0007"


def upgrade() -> None:
    """Add their columns."""
    op.add_column("approvals", sa.Column("notices", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("approvals", sa.Column("notice_ms", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("approvals", sa.Column("notified_ms", sa.BigInteger))
