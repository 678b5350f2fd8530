"""Which tables a database has, and how it gets the ones this program needs.

A database of a newer program is refused and never touched. An older one is migrated inside the transaction
it is given, by Alembic, which is loaded for that alone.
"""

from dataclasses import replace

from sqlalchemy import Connection

from toolgate.errors import StartRefused
from toolgate.lazy_modules import load_lazily
from toolgate.registry.database.tables import SCHEMA_VERSION, read_head, store_head


def check_not_newer(version: int, *, what: str) -> None:
    """Raises StartRefused where a newer program was at work."""
    if version > SCHEMA_VERSION:
        raise StartRefused(
            f"{what} was written by a newer Toolgate (schema {version}, this one knows {SCHEMA_VERSION})",
            hint="start the newer version again; nothing was touched",
        )


def is_older(version: int) -> bool:
    """Whether there is something to migrate."""
    return version < SCHEMA_VERSION


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables from `version` to this program's, in the transaction that is open."""
    # Not imported above: Alembic takes longer to load than all of the registry, and is needed once a release.
    load_lazily("toolgate.registry.migrations").upgrade(connection, version)
    store_head(connection, replace(read_head(connection), schema_version=SCHEMA_VERSION))
