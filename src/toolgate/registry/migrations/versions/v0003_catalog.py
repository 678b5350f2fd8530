"""The catalog: what is in the packages, and what its rows were made of."""

from typing import Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision: Final = "0003"
down_revision: Final = "0002"

_JSON: Final = sa.JSON().with_variant(JSONB, "postgresql")


def upgrade() -> None:
    """Make their tables. Only PostgreSQL has arrays, and indexes into them and into JSON."""
    op.create_table(
        "tool_catalog",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("package_id", sa.String(255), nullable=False),
        sa.Column("package_name", sa.Text, nullable=False),
        sa.Column("package_description", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("tags", sa.JSON().with_variant(ARRAY(sa.Text), "postgresql"), nullable=False),
        sa.Column("tool_name", sa.String(255), nullable=False),
        sa.Column("full_name", sa.String(255), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("input_schema", _JSON),
        sa.Column("output_schema", _JSON),
        sa.Column("annotations", _JSON),
        sa.Column("is_read_only", sa.Boolean, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("schema_version", sa.String(10), nullable=False),
        sa.Column("source", sa.String(20), nullable=False),
        sa.Column("schema_bytes", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("package_id", "tool_name", name="tool_catalog_tool"),
        sa.UniqueConstraint("full_name", name="tool_catalog_full_name"),
        sa.CheckConstraint("schema_bytes <= 262144", name="tool_catalog_schema_size"),
    )
    op.create_index("tool_catalog_category", "tool_catalog", ["category"])
    op.create_table(
        "catalog_sources",
        sa.Column("package_id", sa.String(255), primary_key=True),
        sa.Column("made_from", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
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
