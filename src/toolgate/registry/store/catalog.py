"""What every store checks of the catalog's rows, and the catalog without a disk.

The catalog in SQL: one row a tool, and one a package that says what its rows were made of.

A row is kept whole in `body`, as MessagePack, since a schema is given back as the bytes its server wrote,
which no JSON column does. The other columns are what databases can search by; they are only written here.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, text

from toolgate.catalog.definitions import MAX_SCHEMA_BYTES
from toolgate.errors import InvalidRecord
from toolgate.model.packages import CatalogRow
from toolgate.registry.database.change_count import ChangeCounter
from toolgate.registry.database.tables import CATALOG_SOURCES, TOOL_CATALOG


def check_rows(package_id: str, rows: Sequence[CatalogRow]) -> None:
    """Raises InvalidRecord where `rows` cannot be all there is of one package."""
    names = [row.tool_name for row in rows]
    if len(set(names)) < len(names) or any(row.package_id != package_id for row in rows):
        raise InvalidRecord(f"these are not the rows of the package `{package_id}`")
    if large := [row.full_name for row in rows if schema_size(row) > MAX_SCHEMA_BYTES]:
        raise InvalidRecord(f"a schema of `{large[0]}` has more than {MAX_SCHEMA_BYTES} bytes")


def schema_size(row: CatalogRow) -> int:
    """The size of the larger schema."""
    return max(len(row.input_schema), len(row.output_schema or b""))


def keep_times(rows: Sequence[CatalogRow], before: dict[str, CatalogRow]) -> dict[str, CatalogRow]:
    """`rows` by tool, each with the time of the one `before` if it says the same."""
    kept = {}
    for row in rows:
        old = before.get(row.tool_name)
        is_same = old is not None and replace(row, updated_at_ms=old.updated_at_ms) == old
        kept[row.tool_name] = old if old is not None and is_same else row
    return kept


class MemoryCatalog:
    """The catalog in two dicts."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, CatalogRow]] = {}
        self._made_from: dict[str, str] = {}
        self._count = ChangeCounter()

    async def replace(self, package_id: str, rows: Sequence[CatalogRow], *, made_from: str) -> bool:
        check_rows(package_id, rows)
        before = self._rows.get(package_id, {})
        self._made_from[package_id] = made_from
        self._rows[package_id] = keep_times(rows, before)
        return self._told(self._rows[package_id] != before)

    async def remove(self, package_id: str) -> bool:
        had_rows = bool(self._rows.pop(package_id, None))
        return self._told(self._made_from.pop(package_id, None) is not None or had_rows)

    async def rows(self, package_id: str | None = None) -> Sequence[CatalogRow]:
        packages = sorted(self._rows) if package_id is None else [package_id]
        return [row for one in packages for _, row in sorted(self._rows.get(one, {}).items())]

    async def made_from(self) -> dict[str, str]:
        return dict(self._made_from)

    async def changed(self, seen: int) -> int:
        return await self._count.changed(seen)

    def close(self) -> None:
        """End those who wait."""
        self._count.close()

    def _told(self, is_news: bool) -> bool:  # noqa: FBT001 (reads as a sentence)
        if is_news:
            self._count.increment()
        return is_news


_log = logging.getLogger(__name__)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CatalogRow).decode
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_LONG_NUMBER: Final = re.compile(rb"[0-9]{400}")
_NAMESPACE: Final = uuid5(NAMESPACE_URL, "toolgate:tool_catalog")
"""Ids come from names, so that replicas that write the same row write the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """Whose rows they are, what they were made of, and when."""

    package_id: str
    made_from: str
    at_ms: int


def replace_rows(connection: Connection, source: RowSource, rows: Sequence[CatalogRow]) -> bool:
    """Make `rows`, which were checked, all there is of a package; whether that is news."""
    # First: it locks the package, so that replicas that write it at once do so one after the other.
    _store_source(connection, source)
    before = {row.tool_name: row for row in read_rows(connection, source.package_id)}
    after = keep_times(rows, before)
    new = [row for name, row in after.items() if before.get(name) != row]
    stored = select(TOOL_CATALOG.c.tool_name).where(TOOL_CATALOG.c.package_id == source.package_id)
    # All that is not kept as it is, also what could not be read.
    kept = after.keys() - {row.tool_name for row in new}
    gone = [name for name in connection.execute(stored).scalars() if name not in kept]
    if gone:
        one = (TOOL_CATALOG.c.package_id == source.package_id, TOOL_CATALOG.c.tool_name == bindparam("name"))
        connection.execute(delete(TOOL_CATALOG).where(*one), [{"name": name} for name in gone])
    if new:
        connection.execute(insert(TOOL_CATALOG), [_catalog_columns(row) for row in new])
    return bool(gone or new)


def remove_rows(connection: Connection, package_id: str) -> bool:
    """Forget a package; whether that is news."""
    source = connection.execute(delete(CATALOG_SOURCES).where(CATALOG_SOURCES.c.package_id == package_id))
    rows = connection.execute(delete(TOOL_CATALOG).where(TOOL_CATALOG.c.package_id == package_id))
    return bool(source.rowcount or rows.rowcount)


def read_rows(connection: Connection, package_id: str | None = None) -> Sequence[CatalogRow]:
    """All rows (of a package), sorted by package and tool. One that cannot be read is left out."""
    query = select(TOOL_CATALOG.c.full_name, TOOL_CATALOG.c.body)
    if package_id is not None:
        query = query.where(TOOL_CATALOG.c.package_id == package_id)
    found = []
    for full_name, body in connection.execute(query):
        try:
            found.append(_decode(body))
        except msgspec.MsgspecError as exc:
            _log.warning("the catalog's row `%s` cannot be read, and is left out: %s", full_name, exc)
    # Sorted here, not by the engine: engines differ in collation.
    return sorted(found, key=lambda row: (row.package_id, row.tool_name))


def read_made_from(connection: Connection) -> dict[str, str]:
    """Package id to what its rows were made of."""
    query = select(CATALOG_SOURCES.c.package_id, CATALOG_SOURCES.c.made_from)
    return {row.package_id: row.made_from for row in connection.execute(query)}


def read_catalog_mark(connection: Connection) -> Sequence[Any]:
    """Something that differs once the catalog was changed."""
    query = select(func.count(), func.sum(CATALOG_SOURCES.c.at_ms))
    return tuple(connection.execute(query).one())


def _store_source(connection: Connection, source: RowSource) -> None:
    connection.execute(
        text(
            "INSERT INTO catalog_sources (package_id, made_from, at_ms) "
            "VALUES (:package_id, :made_from, :at_ms) "
            "ON CONFLICT (package_id) DO UPDATE SET made_from = excluded.made_from, at_ms = excluded.at_ms"
        ),
        {"package_id": source.package_id, "made_from": source.made_from, "at_ms": source.at_ms},
    )


def _catalog_columns(row: CatalogRow) -> dict[str, Any]:
    return {
        "id": uuid5(_NAMESPACE, row.full_name),
        "package_id": row.package_id,
        "package_name": _replace_nul(row.package_name),
        "package_description": _replace_nul(row.package_description),
        "category": _replace_nul(row.category),
        "tags": [_replace_nul(tag) for tag in row.tags],
        "tool_name": row.tool_name,
        "full_name": row.full_name,
        "title": _replace_nul(row.title),
        "description": _replace_nul(row.description),
        "input_schema": _parse_json_column(row.input_schema),
        "output_schema": _parse_json_column(row.output_schema),
        "annotations": _parse_json_column(row.annotations),
        "is_read_only": row.is_read_only,
        "digest": row.digest,
        "tokens": row.tokens,
        "schema_version": row.schema_version,
        "source": row.source,
        "schema_bytes": schema_size(row),
        "updated_at": datetime.fromtimestamp(row.updated_at_ms / 1000, UTC),
        "body": _encode(row),
    }


def _replace_nul(text: str) -> str:
    """PostgreSQL keeps no NUL in a text."""
    return text.replace("\0", _REPLACEMENT)


def _parse_json_column(raw: bytes | None) -> Any:
    """What a JSON column can hold of it: nothing where the database, or the way to it, would refuse it."""
    # A NUL again, numbers without end, and what no parser but the server's own takes.
    if raw is None or b"\\u0000" in raw or _LONG_NUMBER.search(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
