"""The catalog: browsing by category and package, search, quality, backfill.

After `/api/catalog/` comes `search` or the id of a category; a package always has `/tools` after it. So a
category and a package may have the same name. Member names are those that clients of the catalog have always
used.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidRequest, StorageFailed
from toolgate.govern import catalog
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.model.packages import CatalogRow, SchemaVersion, Source
from toolgate.surfaces.rest.framework.request import (
    MAX_PAGE,
    PAGING,
    NoBody,
    Parameter,
    RestCall,
    encode_cursor,
    parse_page,
)
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape
from toolgate.surfaces.rest.framework.routing import get, post


class CategoryShown(ResponseShape, frozen=True, kw_only=True):
    """One heading, with what you can see under it."""

    id: str
    """For paths: its name, except for the few that could be misread there."""
    name: str
    """For people. Packages without a category are `uncategorized`."""
    packageCount: int  # noqa: N815, as callers know it
    toolCount: int  # noqa: N815


class CategoriesResponse(ResponseShape, frozen=True, kw_only=True):
    """The categories that hold something you can see."""

    categories: list[CategoryShown]
    next_cursor: NextCursor


class CatalogPackageShown(ResponseShape, frozen=True, kw_only=True):
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


class CatalogPackagesResponse(ResponseShape, frozen=True, kw_only=True):
    """The packages of a category."""

    packages: list[CatalogPackageShown]
    next_cursor: NextCursor


class CatalogToolShown(ResponseShape, frozen=True, kw_only=True):
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
    """Left out if empty, as are the next two."""
    outputSchema: dict[str, Any] | None = None  # noqa: N815
    annotations: dict[str, Any] | None = None


class CatalogToolsResponse(ResponseShape, frozen=True, kw_only=True):
    """The tools of a package."""

    tools: list[CatalogToolShown]
    next_cursor: NextCursor


class ToolFound(CatalogToolShown, frozen=True, kw_only=True):
    """One tool that was found, and where it is."""

    serverId: str  # noqa: N815
    serverName: str  # noqa: N815


class CatalogSearchResponse(ResponseShape, frozen=True, kw_only=True):
    """What was found, the best first."""

    tools: list[ToolFound]
    total: int
    """How many were found, on all pages together. Of very many only the best can be looked at."""
    next_cursor: NextCursor
    indexed: bool
    """False for some seconds after a start: tools are still being indexed, and a later search finds more."""


class QualityShown(ResponseShape, frozen=True, kw_only=True):
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


class CatalogQualityResponse(ResponseShape, frozen=True, kw_only=True):
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
    next_cursor: NextCursor


class BackfillResponse(ResponseShape, frozen=True, kw_only=True):
    """How far a run through the catalog has come."""

    done: int
    """Packages gone through, those of earlier batches included."""
    total: int
    changed: int
    """Packages whose rows were made or replaced in this batch."""
    failed: dict[str, str]
    """Package to why its rows could not be made. The gateway tries again by itself."""
    next_cursor: str | None
    """For the next batch. Null: the run is over."""


MAX_QUERY_CHARS: Final = 1_024  # a paragraph; more words only blur what is searched for
FOUND: Final = 20  # a screen
BATCH: Final = 20  # keeps a progress bar moving


_SEARCH: Final = (
    Parameter("q", f"What the tool should do, in any language: up to {MAX_QUERY_CHARS} characters."),
    Parameter("category", "Only tools of the category with this name."),
    Parameter("tag", "Only tools of packages with this tag."),
    Parameter("server", "Only tools of this package or server."),
    Parameter("readOnly", "Only tools that say of themselves that they change nothing.", "flag"),
    Parameter("limit", f"How many at most: 1 to {MAX_PAGE}, {FOUND} unless said otherwise.", "number"),
    Parameter(
        "cursor", f"The `next_cursor` of the page before. At most {catalog.MAX_FOUND} can be looked at."
    ),
)


@get("/api/catalog", "agent", "List the categories of the catalog", query=PAGING)
async def show_categories(control: Control, call: RestCall[None]) -> CategoriesResponse:
    """Every category with something in it that the caller can reach, and how much.

    The `id` is for paths. It is the name, but `~` is written `~0` there and `/` `~1`, and the
    category `search` is `~search`.
    """
    found = catalog.list_categories(await catalog.find_visible(control, call.caller))
    page, next_cursor = parse_page(call).cut(found, lambda one: one.id)
    shown = [CategoryShown.of(one, packageCount=one.packages, toolCount=one.tools) for one in page]
    return CategoriesResponse(categories=shown, next_cursor=next_cursor)


@get("/api/catalog/search", "agent", "Search the catalog", CatalogSearchResponse, query=_SEARCH)
async def search_tools(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """Tools that suit the words, among those that the caller can reach; without words, all by name."""
    query = call.query
    if len(query.get("q", "")) > MAX_QUERY_CHARS:
        raise InvalidRequest(f"`q` is longer than {MAX_QUERY_CHARS} characters", hint="say it in fewer words")
    wanted = catalog.CatalogQuery(
        text=query.get("q", "").strip(),
        category=query.get("category", ""),
        tag=query.get("tag", ""),
        server=query.get("server", ""),
        is_read_only=call.flag("readOnly"),
    )
    page = parse_page(call, default=FOUND)
    found = await catalog.search_catalog(control, await catalog.find_visible(control, call.caller), wanted)
    # By place: a ranking has no other order.
    placed = list(enumerate(found))
    cut, next_cursor = page.cut(placed, lambda one: f"{one[0]:08}", bytes_of=lambda one: _measure_row(one[1]))
    tools = [
        {**_show_tool(row), "serverId": row.package_id, "serverName": row.package_name} for _, row in cut
    ]
    is_indexed = control.catalog.indexed.is_set()
    return {"tools": tools, "total": len(found), "next_cursor": next_cursor, "indexed": is_indexed}


@get("/api/catalog/{category}", "agent", "List the packages of a category", query=PAGING)
async def show_category(control: Control, call: RestCall[None]) -> CatalogPackagesResponse:
    """The packages of a category, and the servers without one, as far as the caller can reach them."""
    found = catalog.list_packages(
        control, await catalog.find_visible(control, call.caller), call.ids["category"]
    )
    page, next_cursor = parse_page(call).cut(found, lambda one: one.package_id)
    return CatalogPackagesResponse(packages=list(map(_show_package, page)), next_cursor=next_cursor)


@get(
    "/api/catalog/{package}/tools", "agent", "List the tools of a package", CatalogToolsResponse, query=PAGING
)
async def show_tools(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The tools of a package that the caller can reach, with their whole schemas."""
    package = catalog.read_package(
        control, await catalog.find_visible(control, call.caller), call.ids["package"]
    )
    page = parse_page(call)
    rows, next_cursor = page.cut(package.rows, lambda row: row.tool_name, bytes_of=_measure_row)
    return {"tools": list(map(_show_tool, rows)), "next_cursor": next_cursor}


@get(
    "/api/v1/catalog/quality",
    "agent",
    "Show the quality of the catalog",
    query=(Parameter("dependent", "Only packages that depend on the summary fallback.", "flag"), *PAGING),
)
async def show_quality(control: Control, call: RestCall[None]) -> CatalogQualityResponse:
    """How many rows of the catalog have full definitions, and which packages depend on the summary fallback.

    Viewers, publishers and administrators see the whole catalog, hidden rows included. An agent sees the
    quality of the rows that it can see.
    """
    view = await catalog.read_quality(control, call.caller)
    listed = view.dependent if call.flag("dependent") else view.packages
    page, next_cursor = parse_page(call).cut(listed, lambda one: one.package_id)
    return CatalogQualityResponse(
        total=QualityShown.of(view.total),
        full_percent=view.total.full_percent,
        summary_fallback=view.ends_at,
        fallback_ended=view.has_ended,
        dependent=len(view.dependent),
        packages=[
            PackageQualityShown.of(
                one.quality,
                id=one.package_id,
                name=one.name,
                hidden=one.quality.fallback if view.has_ended else 0,
            )
            for one in page
        ],
        next_cursor=next_cursor,
    )


@post(
    "/admin/api/catalog/backfill",
    "admin",
    "Fill the catalog",
    query=(
        Parameter(
            "limit", f"Packages in this batch: 1 to {catalog.MAX_BATCH}, {BATCH} unless said.", "number"
        ),
        Parameter("cursor", "The `next_cursor` of the batch before."),
    ),
    errors=(StorageFailed,),
)
async def run_backfill(control: Control, call: RestCall[NoBody]) -> BackfillResponse:
    """Make the rows of the next packages, as far as they are not made of what there is.

    Begin without a cursor, and go on with the one of the answer until it is null. A run that was cut off is
    taken up by beginning again: what is done is passed over.
    """
    check_unbounded(call.caller, "the catalog is for all callers")
    page = parse_page(call, default=BATCH)
    done = await catalog.backfill_catalog(control, after=page.after, limit=min(page.limit, catalog.MAX_BATCH))
    return BackfillResponse.of(done, next_cursor=None if done.after is None else encode_cursor(done.after))


def _show_package(package: catalog.CatalogPackage) -> CatalogPackageShown:
    row = package.rows[0]
    return CatalogPackageShown.of(
        package,
        row,
        id=package.package_id,
        name=row.package_name,
        description=row.package_description,
        toolCount=package.tools,
        tokens=sum(one.tokens for one in package.rows),
        version=None if package.installed is None else package.installed.version,
    )


def _show_tool(row: CatalogRow) -> dict[str, Any]:
    """What there is; schemas as the bytes they are kept in."""
    tool: dict[str, Any] = {
        "name": row.tool_name,
        "fullName": row.full_name,
        "description": row.description,
        "inputSchema": msgspec.Raw(row.input_schema),
        "category": catalog.category_of(row),
        "tags": row.tags,
        "readOnly": row.is_read_only,
        "source": row.source,
        "schemaVersion": row.schema_version,
        "digest": row.digest,
        "tokens": row.tokens,
    }
    if row.title:
        tool["title"] = row.title
    if row.output_schema is not None:
        tool["outputSchema"] = msgspec.Raw(row.output_schema)
    if row.annotations is not None:
        tool["annotations"] = msgspec.Raw(row.annotations)
    return tool


def _measure_row(row: CatalogRow) -> int:
    return len(row.input_schema) + len(row.output_schema or b"") + len(row.description)
