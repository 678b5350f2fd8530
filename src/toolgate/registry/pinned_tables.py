"""The definitions that pins name, in SQL: what both engines have in common."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select, text

from toolgate.registry.database.tables import PINNED_DEFINITIONS

_READ_AT_ONCE: Final = 500


def store_pinned(connection: Connection, definitions: Mapping[str, bytes]) -> None:
    """Keep these."""
    # One statement that both engines know: two replicas may keep the same at once.
    connection.execute(
        text(
            f"INSERT INTO {PINNED_DEFINITIONS.name} (digest, definition) VALUES (:digest, :definition) "  # noqa: S608
            "ON CONFLICT (digest) DO NOTHING"
        ),
        [{"digest": digest, "definition": raw} for digest, raw in sorted(definitions.items())],
    )


def read_pinned(connection: Connection, digests: Collection[str]) -> Mapping[str, bytes]:
    """Those that are kept."""
    wanted = sorted(digests)
    found: dict[str, bytes] = {}
    for begin in range(0, len(wanted), _READ_AT_ONCE):
        table, part = PINNED_DEFINITIONS.c, wanted[begin : begin + _READ_AT_ONCE]
        rows = connection.execute(select(table.digest, table.definition).where(table.digest.in_(part)))
        found |= {row.digest: bytes(row.definition) for row in rows}
    return found


def read_digests(connection: Connection) -> frozenset[str]:
    """Of all that are kept."""
    return frozenset(connection.execute(select(PINNED_DEFINITIONS.c.digest)).scalars())


def forget_pinned(connection: Connection, digests: Collection[str]) -> None:
    """Keep these no longer."""
    one = PINNED_DEFINITIONS.c.digest == bindparam("gone")
    connection.execute(
        delete(PINNED_DEFINITIONS).where(one), [{"gone": digest} for digest in sorted(digests)]
    )
