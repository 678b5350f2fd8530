"""The catalog's rows of one package, made from what its manifest declares and what its server lists.

The list of the running server is what callers get, so where there is one, it is what the catalog shows.

How well the catalog knows its tools: rows by source, and when rows without a definition stop being shown.

A row from a manifest or from a server's own list has a full definition. A row from a summary, or the one row
of a package whose tools are unknown, is a fallback. The fallback ends when enough rows are complete. That is
decided from the rows and one number alone, so all processes with the same rows decide the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final

import msgspec

from toolgate.model.effects import read_effects
from toolgate.model.packages import ALL_TOOLS, CatalogRow, Package, Source
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools, ToolDefinition

MAX_ANNOTATIONS_BYTES: Final = 16 * 1024
"""A row keeps no more of them. Schemas have their limit from the check of definitions, 256 KiB each."""


class _RowMembers(msgspec.Struct, rename="camel"):
    """The members of a checked definition that a row has beside its description."""

    name: str
    input_schema: msgspec.Raw
    title: str = ""
    output_schema: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()


class _RowHints(msgspec.Struct, rename="camel"):
    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTool:
    """A tool as a manifest names it."""

    name: str
    raw: bytes
    """Its definition as MCP has it; of a summary only `name` and `description`."""
    digest: str | None = None
    """As a pin has it. None: this is a summary."""
    description: str = ""
    tokens: int = 0
    """About what it costs a model."""


def make_rows(
    package: Package | None,
    declared: Sequence[DeclaredTool],
    *,
    record: ServerRecord,
    offer: ServerTools | None,
    at_ms: int,
) -> tuple[CatalogRow, ...]:
    """The rows of one package, or of a server without one, sorted by tool.

    A tool that the server lists as the manifest has it is `manifest`, any other that it lists `discovered`.
    Of a server that was never listed the manifest alone speaks; of one without a manifest, one row says
    that something is there.
    """
    blank = _make_blank(package, record, at_ms)
    if offer is not None and (offer.state == "ready" or offer.tools):
        digests = {tool.name: tool.digest for tool in declared}
        rows = [
            _make_listed_row(blank, tool, declared=digests.get(name)) for name, tool in offer.tools.items()
        ]
    elif declared or (package is not None and package.source == "manifest"):
        rows = [_make_declared_row(blank, tool) for tool in declared]
    else:
        rows = [replace(blank, source="legacy")]
    return tuple(sorted(rows, key=lambda row: row.tool_name))


def _make_blank(package: Package | None, record: ServerRecord, at_ms: int) -> CatalogRow:
    """What all rows have in common. What an operator wrote into the record counts before the manifest."""
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


def _make_listed_row(blank: CatalogRow, tool: ToolDefinition, *, declared: str | None) -> CatalogRow:
    row = fill_row(blank, tool)
    return replace(row, source="manifest") if tool.digest == declared else replace(row, source="discovered")


def _make_declared_row(blank: CatalogRow, tool: DeclaredTool) -> CatalogRow:
    if tool.digest is not None:
        return replace(fill_row(blank, tool), source="manifest")
    return replace(
        blank, tool_name=tool.name, description=tool.description, tokens=tool.tokens, source="summary"
    )


def fill_row(blank: CatalogRow, tool: ToolDefinition | DeclaredTool) -> CatalogRow:
    """A row of a definition that was checked, here or when its manifest was read."""
    members = msgspec.json.decode(tool.raw, type=_RowMembers)
    annotations = bytes(members.annotations)
    hints = msgspec.json.decode(annotations or b"{}", type=_RowHints)
    effects = read_effects({"readOnlyHint": hints.read_only_hint, "destructiveHint": hints.destructive_hint})
    return replace(
        blank,
        tool_name=tool.ref.name if isinstance(tool, ToolDefinition) else tool.name,
        title=members.title or hints.title,
        description=tool.description,
        input_schema=bytes(members.input_schema),
        output_schema=bytes(members.output_schema) or None,
        annotations=annotations if 0 < len(annotations) <= MAX_ANNOTATIONS_BYTES else None,
        is_read_only=effects.counts_as("read_only", is_deny=False),
        digest=tool.digest or "",
        tokens=tool.tokens,
    )


SOURCES: Final[tuple[Source, ...]] = ("manifest", "discovered", "summary", "legacy")
FALLBACK: Final[frozenset[Source]] = frozenset({"summary", "legacy"})
"""Sources without a definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuality:
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


def assess_rows(rows: Iterable[CatalogRow]) -> RowQuality:
    """The quality of these rows."""
    counts = dict.fromkeys(SOURCES, 0)
    with_schema = with_description = 0
    for row in rows:
        counts[row.source] += 1
        with_schema += row.input_schema != b"{}"
        with_description += bool(row.description)
    return RowQuality(**counts, with_schema=with_schema, with_description=with_description)


def sum_qualities(qualities: Iterable[RowQuality]) -> RowQuality:
    """Several packages as one."""
    found = list(qualities)
    names = [one.name for one in fields(RowQuality)]
    return RowQuality(**{name: sum(getattr(one, name) for one in found) for name in names})


class CatalogQuality:
    """The quality of each package, kept while rows change, and whether the fallback has ended.

    Nothing is remembered: if the share falls below `ends_at` again, the fallback is back.
    """

    def __init__(self, ends_at: float | None = None) -> None:
        """`ends_at`: the percentage of full rows from which the fallback is off. None: it never ends."""
        self.ends_at: Final = ends_at
        self._packages: dict[str, RowQuality] = {}

    @property
    def packages(self) -> Mapping[str, RowQuality]:
        return MappingProxyType(self._packages)

    @property
    def total(self) -> RowQuality:
        return sum_qualities(self._packages.values())

    @property
    def has_ended(self) -> bool:
        """Whether rows of the fallback are hidden."""
        total = self.total
        return self.ends_at is not None and total.full * 100 >= self.ends_at * total.rows

    def put(self, package_id: str, rows: Iterable[CatalogRow]) -> None:
        """Take in the rows of a package, in place of those it had."""
        self._packages[package_id] = assess_rows(rows)

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
