"""The definitions that pins name."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0004"
down_revision: Final = "0003"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "pinned_definitions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("definition", sa.LargeBinary, nullable=False),
    )
