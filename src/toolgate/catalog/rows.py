"""The catalog's rows of one package, made from what its manifest declares and what its server lists.

The list of the running server is what callers get, so where there is one, it is what the catalog shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolgate.model.effects import read_effects
from toolgate.model.packages import ALL_TOOLS, CatalogRow, Package
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools, ToolDefinition

MAX_ANNOTATIONS_BYTES: Final = 16 * 1024
"""A row keeps no more of them. Schemas have their limit from the check of definitions, 256 KiB each."""


class _Shown(msgspec.Struct, rename="camel"):
    """The members of a checked definition that a row has beside its description."""

    name: str
    input_schema: msgspec.Raw
    title: str = ""
    output_schema: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()


class _Hints(msgspec.Struct, rename="camel"):
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


def project(
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
    blank = _blank(package, record, at_ms)
    if offer is not None and (offer.state == "ready" or offer.tools):
        digests = {tool.name: tool.digest for tool in declared}
        rows = [_listed(blank, tool, declared=digests.get(name)) for name, tool in offer.tools.items()]
    elif declared or (package is not None and package.source == "manifest"):
        rows = [_declared(blank, tool) for tool in declared]
    else:
        rows = [replace(blank, source="legacy")]
    return tuple(sorted(rows, key=lambda row: row.tool_name))


def _blank(package: Package | None, record: ServerRecord, at_ms: int) -> CatalogRow:
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


def _listed(blank: CatalogRow, tool: ToolDefinition, *, declared: str | None) -> CatalogRow:
    row = fill_row(blank, tool)
    return replace(row, source="manifest") if tool.digest == declared else replace(row, source="discovered")


def _declared(blank: CatalogRow, tool: DeclaredTool) -> CatalogRow:
    if tool.digest is not None:
        return replace(fill_row(blank, tool), source="manifest")
    return replace(
        blank, tool_name=tool.name, description=tool.description, tokens=tool.tokens, source="summary"
    )


def fill_row(blank: CatalogRow, tool: ToolDefinition | DeclaredTool) -> CatalogRow:
    """A row of a definition that was checked, here or when its manifest was read."""
    members = msgspec.json.decode(tool.raw, type=_Shown)
    annotations = bytes(members.annotations)
    hints = msgspec.json.decode(annotations or b"{}", type=_Hints)
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
