"""The rows of the catalog: the tools of packages and servers, and how complete the catalog is.

A row comes from a manifest or from the list of a running server. Callers get the server's list, so it takes
precedence. A row without a full definition (from a summary, or the only row of a package whose tools are
unknown) is a fallback. Fallback rows are hidden when enough rows are complete. The rows and one number decide
it, so all processes with the same rows decide alike.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import msgspec

from toolgate.model.packages import ALL_TOOLS, CatalogRow, Package, Source
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools, ToolDefinition

MAX_ANNOTATIONS_BYTES: Final = 16 * 1024
"""Larger annotations are dropped. The checks of definitions limit schemas to 256 KiB each."""


class _RowMembers(msgspec.Struct, rename="camel"):
    """The members of a checked definition that a row has, except its description."""

    name: str
    input_schema: msgspec.Raw
    title: str = ""
    output_schema: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()


def make_rows(
    package: Package | None,
    declared: Sequence[ToolDefinition],
    *,
    record: ServerRecord,
    offer: ServerTools | None,
    at_ms: int,
) -> tuple[CatalogRow, ...]:
    """The rows of one package, or of a server without a package, sorted by tool.

    A tool that the server lists exactly as declared is `manifest`, any other listed tool `discovered`. A
    server that has not listed has the rows of its manifest. Without a manifest it has one placeholder.
    """
    blank = _make_blank(package, record, at_ms)
    if offer is not None and (offer.state == "ready" or offer.tools):
        own = {(tool.name, tool.digest) for tool in declared}
        rows = [
            replace(fill_row(blank, tool), source="manifest" if (name, tool.digest) in own else "discovered")
            for name, tool in offer.tools.items()
        ]
    elif declared or (package is not None and package.source == "manifest"):
        rows = [
            replace(fill_row(blank, tool), source="manifest")
            if tool.digest
            else replace(
                blank, tool_name=tool.name, description=tool.description, tokens=tool.tokens, source="summary"
            )
            for tool in declared
        ]
    else:
        rows = [replace(blank, source="legacy")]
    return tuple(sorted(rows, key=lambda row: row.tool_name))


def _make_blank(package: Package | None, record: ServerRecord, at_ms: int) -> CatalogRow:
    """The common fields of all rows. The record takes precedence over the manifest."""
    known = package or Package(package_id=record.server_id, version="", sha256="")
    return CatalogRow(
        package_id=record.server_id,
        tool_name=ALL_TOOLS,
        package_name=record.display_name or known.name or record.server_id,
        package_description=known.description,
        category=record.category or known.category,
        tags=record.tags or known.tags,
        schema_version=known.schema_version,
        updated_at_ms=at_ms,
    )


def fill_row(blank: CatalogRow, tool: ToolDefinition) -> CatalogRow:
    members = msgspec.json.decode(tool.raw, type=_RowMembers)
    annotations = bytes(members.annotations)
    hints: dict[str, Any] = msgspec.json.decode(annotations or b"{}")
    return replace(
        blank,
        tool_name=tool.name,
        title=members.title or hints.get("title", ""),
        description=tool.description,
        input_schema=bytes(members.input_schema),
        output_schema=bytes(members.output_schema) or None,
        annotations=annotations if 0 < len(annotations) <= MAX_ANNOTATIONS_BYTES else None,
        is_read_only=tool.is_read_only,
        digest=tool.digest,
        tokens=tool.tokens,
    )


SOURCES: Final[tuple[Source, ...]] = ("manifest", "discovered", "summary", "legacy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuality:
    """The rows of one or all packages, by source and content."""

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
        return self.manifest + self.discovered

    @property
    def fallback(self) -> int:
        return self.summary + self.legacy

    @property
    def full_percent(self) -> float:
        """Rounded down to a tenth, so that 100 means all. Without rows: 100."""
        return self.full * 1_000 // self.rows / 10 if self.rows else 100.0


def assess_rows(rows: Collection[CatalogRow]) -> RowQuality:
    return RowQuality(
        **Counter[str](row.source for row in rows),
        with_schema=sum(row.input_schema != b"{}" for row in rows),
        with_description=sum(bool(row.description) for row in rows),
    )


def sum_qualities(qualities: Iterable[RowQuality]) -> RowQuality:
    found = list(qualities)
    names = [one.name for one in fields(RowQuality)]
    return RowQuality(**{name: sum(getattr(one, name) for one in found) for name in names})


class CatalogQuality:
    """The quality of each package, and whether fallback rows are hidden. They are shown again if the share
    falls below `ends_at`."""

    def __init__(self, ends_at: float | None = None) -> None:
        """`ends_at`: the percentage of full rows at which fallback rows are hidden. None: they are never
        hidden."""
        self.ends_at: Final = ends_at
        self.packages: Final[dict[str, RowQuality]] = {}

    @property
    def total(self) -> RowQuality:
        return sum_qualities(self.packages.values())

    @property
    def has_ended(self) -> bool:
        total = self.total
        return self.ends_at is not None and total.full * 100 >= self.ends_at * total.rows

    def put(self, package_id: str, rows: Collection[CatalogRow]) -> None:
        self.packages[package_id] = assess_rows(rows)

    def drop(self, package_id: str) -> None:
        self.packages.pop(package_id, None)

    def select(self, rows: Mapping[str, tuple[CatalogRow, ...]]) -> dict[str, tuple[CatalogRow, ...]]:
        """The visible rows, by package. `rows` are all rows that were put."""
        if not self.has_ended:
            return dict(rows)
        shown = {
            package_id: tuple(row for row in group if row.source not in ("summary", "legacy"))
            for package_id, group in rows.items()
        }
        return {package_id: group for package_id, group in shown.items() if group}
