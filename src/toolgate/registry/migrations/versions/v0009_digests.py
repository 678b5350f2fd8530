"""The digest of the log, by revision. A log without digests begins a chain at its current revision."""

from typing import Final
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision: Final = "0009"
down_revision: Final = "0008"


def upgrade() -> None:
    """Make the table, with the first digest. It is random: what was before it cannot be compared."""
    digests = op.create_table(
        "digests",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    head = sa.table("head", sa.column("revision"))
    newest = op.get_bind().execute(sa.select(head.c.revision)).scalar_one_or_none()
    if newest is not None:
        op.bulk_insert(digests, [{"revision": newest, "digest": uuid4().hex + uuid4().hex}])
