"""How well the catalog knows its tools: rows by source, and when rows without a definition stop being shown.

A row from a manifest or from a server's own list has a full definition. A row from a summary, or the one row
of a package whose tools are unknown, is a fallback. The fallback ends when enough rows are complete. That is
decided from the rows and one number alone, so all processes with the same rows decide the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from toolgate.model.packages import CatalogRow, Source

SOURCES: Final[tuple[Source, ...]] = ("manifest", "discovered", "summary", "legacy")
FALLBACK: Final[frozenset[Source]] = frozenset({"summary", "legacy"})
"""Sources without a definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Rows of a package, or of all of them, by source and by what they have."""

    manifest: int = 0
    discovered: int = 0
    summary: int = 0
    legacy: int = 0
    with_schema: int = 0
    with_description: int = 0

    @property
    def rows(self) -> int:
        return self.full + self.fallback

    @property
    def full(self) -> int:
        """Rows with a full definition."""
        return self.manifest + self.discovered

    @property
    def fallback(self) -> int:
        """Rows that are hidden when the fallback has ended."""
        return self.summary + self.legacy

    @property
    def full_percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. Of no rows, 100."""
        return self.full * 1_000 // self.rows / 10 if self.rows else 100.0


def assess(rows: Iterable[CatalogRow]) -> Quality:
    """The quality of these rows."""
    counts = dict.fromkeys(SOURCES, 0)
    with_schema = with_description = 0
    for row in rows:
        counts[row.source] += 1
        with_schema += row.input_schema != b"{}"
        with_description += bool(row.description)
    return Quality(**counts, with_schema=with_schema, with_description=with_description)


def add_up(qualities: Iterable[Quality]) -> Quality:
    """Several packages as one."""
    found = list(qualities)
    names = [one.name for one in fields(Quality)]
    return Quality(**{name: sum(getattr(one, name) for one in found) for name in names})


class CatalogQuality:
    """The quality of each package, kept while rows change, and whether the fallback has ended.

    Nothing is remembered: if the share falls below `ends_at` again, the fallback is back.
    """

    def __init__(self, ends_at: float | None = None) -> None:
        """`ends_at`: the percentage of full rows from which the fallback is off. None: it never ends."""
        self.ends_at: Final = ends_at
        self._packages: dict[str, Quality] = {}

    @property
    def packages(self) -> Mapping[str, Quality]:
        return MappingProxyType(self._packages)

    @property
    def total(self) -> Quality:
        return add_up(self._packages.values())

    @property
    def has_ended(self) -> bool:
        """Whether rows of the fallback are hidden."""
        total = self.total
        return self.ends_at is not None and total.full * 100 >= self.ends_at * total.rows

    def put(self, package_id: str, rows: Iterable[CatalogRow]) -> None:
        """Take in the rows of a package, in place of those it had."""
        self._packages[package_id] = assess(rows)

    def drop(self, package_id: str) -> None:
        """Forget a package."""
        self._packages.pop(package_id, None)

    def select(self, rows: Mapping[str, tuple[CatalogRow, ...]]) -> dict[str, tuple[CatalogRow, ...]]:
        """The rows that are shown, by package; `rows` are all that were put in."""
        if not self.has_ended:
            return dict(rows)
        shown = {package_id: _full_rows(group) for package_id, group in rows.items()}
        return {package_id: group for package_id, group in shown.items() if group}


def _full_rows(rows: tuple[CatalogRow, ...]) -> tuple[CatalogRow, ...]:
    return tuple(row for row in rows if row.source not in FALLBACK)
