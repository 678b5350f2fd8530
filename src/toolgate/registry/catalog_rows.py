"""What every store checks of the catalog's rows, and the catalog without a disk."""

from collections.abc import Sequence
from dataclasses import replace

from toolgate.catalog.definitions import MAX_SCHEMA_BYTES
from toolgate.errors import InvalidRecord
from toolgate.model.packages import CatalogRow
from toolgate.registry.database.change_count import ChangeCount


def check_rows(package_id: str, rows: Sequence[CatalogRow]) -> None:
    """Raises InvalidRecord where `rows` cannot be all there is of one package."""
    names = [row.tool_name for row in rows]
    if len(set(names)) < len(names) or any(row.package_id != package_id for row in rows):
        raise InvalidRecord(f"these are not the rows of the package `{package_id}`")
    if large := [row.full_name for row in rows if schema_bytes(row) > MAX_SCHEMA_BYTES]:
        raise InvalidRecord(f"a schema of `{large[0]}` has more than {MAX_SCHEMA_BYTES} bytes")


def schema_bytes(row: CatalogRow) -> int:
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
        self._count = ChangeCount()

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
            self._count.rise()
        return is_news
