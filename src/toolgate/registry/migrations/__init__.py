"""The steps from each release's tables to the next, run by Alembic: one module a step in `versions/`.

A step is DDL for both engines, and only adds: replicas of the previous release keep working meanwhile.
`tables.py` must always say what all steps together make.
"""

from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

_SCRIPTS: Final = "toolgate.registry:migrations"


def upgrade(connection: Connection, version: int) -> None:
    """From the tables of `version` (0: none) to the newest, in the transaction that is open."""
    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    config.attributes["connection"] = connection
    if version and MigrationContext.configure(connection).get_current_revision() is None:
        # The first release kept no account of migrations.
        command.stamp(config, f"{version:04}")
    command.upgrade(config, "head")
