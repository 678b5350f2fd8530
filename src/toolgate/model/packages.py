"""Packages, and the rows of the catalog of their tools."""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from toolgate.model.tools import UNSTATED, Effects, read_effects

Source = Literal["manifest", "summary", "legacy", "discovered"]
"""The source of a catalog row: a full definition in a manifest, a summary there, the list of the running
server, or none (`legacy`, a placeholder)."""
SchemaVersion = Literal["v2", "legacy"]
"""The schema version of a manifest. Servers without a manifest have `legacy`."""

UNCATEGORIZED = "uncategorized"
"""The category of packages and servers without one, also if a record states it."""
ALL_TOOLS = "*"
"""The tool name of a placeholder row."""
MAX_PART_BYTES: Final = 4 * 1024 * 1024  # of an uploaded archive: the largest body of a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An installed package. Its manifest is stored with its archive."""

    package_id: str
    """The id of the package, and of its server."""
    version: str
    sha256: str
    name: str = ""
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    schema_version: SchemaVersion = "legacy"
    source: Source = "legacy"
    """How its manifest describes its tools."""
    declared: tuple[str, ...] = ()
    """The names of the tools in its manifest."""
    attached: bool = False
    """Whether it only describes a server that is registered separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRow:
    package_id: str
    tool_name: str
    """ALL_TOOLS in a placeholder."""
    package_name: str = ""
    package_description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    title: str = ""
    description: str = ""
    input_schema: bytes = b"{}"
    """JSON, as the server or the manifest wrote it."""
    output_schema: bytes | None = None
    annotations: bytes | None = None
    is_read_only: bool = False
    digest: str = ""
    """SHA-256 of the definition, as in a pin; empty for a summary."""
    tokens: int = 0
    """Estimated tokens of the definition."""
    schema_version: SchemaVersion = "legacy"
    source: Source = "discovered"
    updated_at_ms: int = 0

    @property
    def full_name(self) -> str:
        """The name at the MCP endpoint. `?tools=` also accepts the name of a placeholder."""
        return f"{self.package_id}.{self.tool_name}"

    @property
    def effects(self) -> Effects:
        return UNSTATED if self.annotations is None else read_effects(msgspec.json.decode(self.annotations))
