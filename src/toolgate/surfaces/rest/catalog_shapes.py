"""The shapes of the catalog. Their members have the names that those who browse it have always used."""

from typing import Any

from toolgate.model.packages import SchemaVersion, Source
from toolgate.surfaces.rest.shapes import Shown


class CategoryShown(Shown, frozen=True, kw_only=True):
    """One heading, with what you can see under it."""

    id: str
    """As it stands in a path: its name, but for the few that could be misread there."""
    name: str
    """For people. Packages without a category are `uncategorized`."""
    packageCount: int  # noqa: N815, as callers know it
    toolCount: int  # noqa: N815


class CategoriesAnswer(Shown, frozen=True, kw_only=True):
    """The categories that hold something you can see."""

    categories: list[CategoryShown]
    next_cursor: str | None
    """For the next page. Null: this is the last."""


class CatalogPackageShown(Shown, frozen=True, kw_only=True):
    """One package, or one server that runs from none."""

    id: str
    """Before the dot in the full names of its tools; also the id of its server."""
    name: str
    description: str
    toolCount: int  # noqa: N815
    """How many of its tools you can see. 0: none are known yet."""
    tokens: int
    """About what the definitions of these tools cost a model."""
    tags: list[str]
    version: str | None
    """Of the package that is installed. Null: the server runs from none."""
    source: Source
    """How far its tools are known."""


class CatalogPackagesAnswer(Shown, frozen=True, kw_only=True):
    """The packages of a category."""

    packages: list[CatalogPackageShown]
    next_cursor: str | None


class CatalogToolShown(Shown, frozen=True, kw_only=True):
    """One tool. Schemas are as its server or its manifest wrote them."""

    name: str
    """As its server calls it. `*`: none of its tools are known yet."""
    fullName: str  # noqa: N815
    """As `?tools=` and the `tools` of a skill name it."""
    description: str
    inputSchema: dict[str, Any]  # noqa: N815
    category: str
    tags: list[str]
    readOnly: bool  # noqa: N815
    """It says of itself that it changes nothing."""
    source: Source
    """Known as its package declares it (`manifest`), as its server lists it (`discovered`), by name and
    description alone (`summary`), or not at all (`legacy`).
    """
    schemaVersion: SchemaVersion  # noqa: N815
    """Of the manifest."""
    digest: str
    """Of the definition, as a pin has it. Empty where only a summary is known."""
    tokens: int
    """About what the definition costs a model."""
    title: str = ""
    """Left out where there is none, as are the next two."""
    outputSchema: dict[str, Any] | None = None  # noqa: N815
    annotations: dict[str, Any] | None = None


class CatalogToolsAnswer(Shown, frozen=True, kw_only=True):
    """The tools of a package."""

    tools: list[CatalogToolShown]
    next_cursor: str | None


class ToolFound(CatalogToolShown, frozen=True, kw_only=True):
    """One tool that was found, and where it is."""

    serverId: str  # noqa: N815
    serverName: str  # noqa: N815


class CatalogSearchAnswer(Shown, frozen=True, kw_only=True):
    """What was found, the best first."""

    tools: list[ToolFound]
    total: int
    """How many were found, on all pages together. Of very many only the best can be looked at."""
    next_cursor: str | None
    indexed: bool
    """False for some seconds after a start: tools are still being indexed, and a later search finds more."""


class QualityShown(Shown, frozen=True, kw_only=True):
    """Rows of the catalog, by where they come from and by what they have."""

    rows: int
    manifest: int
    """Rows with the full definition of a manifest."""
    discovered: int
    """Rows with the full definition that the running server lists."""
    summary: int
    """Rows with a name and a description alone."""
    legacy: int
    """Packages whose tools are not known."""
    with_schema: int
    with_description: int


class PackageQualityShown(QualityShown, frozen=True, kw_only=True):
    """The same of one package, or of one server that runs from none."""

    id: str
    name: str
    hidden: int
    """Rows that callers do not see, because the fallback has ended."""


class CatalogQualityAnswer(Shown, frozen=True, kw_only=True):
    """How well the catalog knows its tools. For an agent: the tools that it sees."""

    total: QualityShown
    full_percent: float
    """Rows with full definitions (`manifest` and `discovered`), in percent, rounded down."""
    summary_fallback: float | None
    """The setting: the percentage from which the fallback is off. Null: it stays. For an agent, null."""
    fallback_ended: bool
    """Whether rows from `summary` and `legacy` are hidden."""
    dependent: int
    """Packages that have such rows."""
    packages: list[PackageQualityShown]
    next_cursor: str | None


class BackfillAnswer(Shown, frozen=True, kw_only=True):
    """How far a run through the catalog has come."""

    done: int
    """Packages gone through, those of earlier batches included."""
    total: int
    changed: int
    """Packages whose rows were made or made anew in this batch."""
    failed: dict[str, str]
    """Package to why its rows could not be made. The gateway tries again by itself."""
    next_cursor: str | None
    """For the next batch. Null: the run is over."""
