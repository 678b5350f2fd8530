"""Packages, and the rows of the catalog that shows what is in them."""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from toolgate.model.effects import UNSTATED, Effects, read_effects

Source = Literal["manifest", "summary", "legacy", "discovered"]
"""Where a row of the catalog comes from: a full definition in a manifest, a summary there, nothing at all (a
placeholder), or what the running server lists."""
SchemaVersion = Literal["v2", "legacy"]
"""Of the manifest; servers without one have `legacy`."""

UNCATEGORIZED = "uncategorized"
"""The category of packages and servers without one. Who writes it into a record means the same."""
ALL_TOOLS = "*"
"""The name in the row of a package of which no tool is known yet."""
MAX_PART_BYTES: Final = 4 * 1024 * 1024
"""Of an archive on its way in: the largest body of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRef:
    """The package a server runs from."""

    version: str
    sha256: str
    """Of its archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An installed package. What it declares stands in the manifest that is kept with its archive."""

    package_id: str
    """Also the id of its server."""
    version: str
    sha256: str
    name: str = ""
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    schema_version: SchemaVersion = "legacy"
    source: Source = "legacy"
    """How far its manifest describes its tools."""
    declared: tuple[str, ...] = ()
    """The names of the tools in its manifest."""
    attached: bool = False
    """It describes a server that is registered by itself, and does not run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRow:
    """One tool in the catalog."""

    package_id: str
    tool_name: str
    """ALL_TOOLS where none is known."""
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
    """SHA-256 of the definition, as a pin names it; empty where only a summary is known."""
    tokens: int = 0
    """About what the definition costs a model."""
    schema_version: SchemaVersion = "legacy"
    source: Source = "discovered"
    updated_at_ms: int = 0

    @property
    def full_name(self) -> str:
        """As the MCP door calls it. Also that of a placeholder is one that `?tools=` understands."""
        return f"{self.package_id}.{self.tool_name}"

    @property
    def effects(self) -> Effects:
        """What the annotations say that a call does."""
        return UNSTATED if self.annotations is None else read_effects(msgspec.json.decode(self.annotations))
