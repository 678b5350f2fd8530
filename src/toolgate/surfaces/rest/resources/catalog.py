"""The catalog: browsing by category and package, search, quality, backfill.

After `/api/catalog/` comes `search` or the id of a category; a package always has `/tools` after it. So a
category and a package may have the same name. Member names are those that catalog clients have always used.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidRequest, StorageFailed, ToolgateError
from toolgate.govern import catalog
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.model.packages import CatalogRow, Package, SchemaVersion, Source
from toolgate.surfaces.rest.framework.request import (
    MAX_PAGE,
    PAGING,
    NoBody,
    Parameter,
    RestCall,
    encode_cursor,
)
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape
from toolgate.surfaces.rest.framework.routing import get, post


class CategoryShown(ResponseShape, frozen=True, kw_only=True):
    """One category, with the number of packages and tools that you can see."""

    id: str
    """The id in paths. It equals the name, except for a few names that paths cannot contain."""
    name: str
    """The name for people. Packages without a category are `uncategorized`."""
    packageCount: int  # noqa: N815, as callers know it
    toolCount: int  # noqa: N815


class CategoriesResponse(ResponseShape, frozen=True, kw_only=True):
    """The categories with packages that you can see."""

    categories: list[CategoryShown]
    next_cursor: NextCursor


class CatalogPackageShown(ResponseShape, frozen=True, kw_only=True):
    """A package, or a server that was not installed from a package."""

    id: str
    """The prefix in the full names of its tools, before the dot. Also the id of its server."""
    name: str
    description: str
    toolCount: int  # noqa: N815
    """The number of its tools that you can see. 0: none are known so far."""
    tokens: int
    """Estimated tokens of the definitions of these tools."""
    tags: list[str]
    version: str | None
    """The installed version of the package. Null: the server has no package."""
    source: Source
    """How complete the knowledge of its tools is."""


class CatalogPackagesResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of packages of a category."""

    packages: list[CatalogPackageShown]
    next_cursor: NextCursor


class CatalogToolShown(ResponseShape, frozen=True, kw_only=True):
    """One tool. Schemas are unchanged from its server or its manifest."""

    name: str
    """The name on its server. `*`: no tools of the package are known so far."""
    fullName: str  # noqa: N815
    """The name for `?tools=` and for the `tools` of a skill."""
    description: str
    inputSchema: dict[str, Any]  # noqa: N815
    category: str
    tags: list[str]
    readOnly: bool  # noqa: N815
    """Whether the server marks it as read-only."""
    source: Source
    """The source: the manifest of its package (`manifest`), the list of its server (`discovered`), only name
    and description (`summary`), or unknown (`legacy`)."""
    schemaVersion: SchemaVersion  # noqa: N815
    """The schema version of the manifest."""
    digest: str
    """The digest of the definition, as in a pin. Empty if only a summary is known."""
    tokens: int
    """Estimated tokens of the definition."""
    title: str = ""
    """Omitted if empty, as are the next two fields."""
    outputSchema: dict[str, Any] | None = None  # noqa: N815
    annotations: dict[str, Any] | None = None


class CatalogToolsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of tools of a package."""

    tools: list[CatalogToolShown]
    next_cursor: NextCursor


class ToolFound(CatalogToolShown, frozen=True, kw_only=True):
    """A tool that the search found, with its server."""

    serverId: str  # noqa: N815
    serverName: str  # noqa: N815


class CatalogSearchResponse(ResponseShape, frozen=True, kw_only=True):
    """The tools that the search found, the best match first."""

    tools: list[ToolFound]
    total: int
    """The number of matches on all pages. A search returns at most the best matches up to a limit."""
    next_cursor: NextCursor
    indexed: bool
    """False for some seconds after a start, while the gateway still indexes tools: search again later."""


class QualityShown(ResponseShape, frozen=True, kw_only=True):
    """The number of catalog rows by source and content."""

    rows: int
    manifest: int
    """Rows with the full definition of a manifest."""
    discovered: int
    """Rows with the full definition that the running server lists."""
    summary: int
    """Rows with only a name and a description."""
    legacy: int
    """Packages without known tools."""
    with_schema: int
    with_description: int


class PackageQualityShown(QualityShown, frozen=True, kw_only=True):
    """The quality of one package, or of a server without a package."""

    id: str
    name: str
    hidden: int
    """Rows that callers do not see, because the fallback is off."""


class CatalogQualityResponse(ResponseShape, frozen=True, kw_only=True):
    """How complete the catalog is. For an agent: only the tools that it sees."""

    total: QualityShown
    full_percent: float
    """The percentage of rows with full definitions (`manifest` and `discovered`), rounded down."""
    summary_fallback: float | None
    """The setting: the percentage from which the fallback is off. Null: never off. For an agent, null."""
    fallback_ended: bool
    """Whether rows of `summary` and `legacy` are hidden."""
    dependent: int
    """The number of packages with such rows."""
    packages: list[PackageQualityShown]
    next_cursor: NextCursor


class BackfillResponse(ResponseShape, frozen=True, kw_only=True):
    """The progress of a backfill of the catalog."""

    done: int
    """The number of packages processed, including earlier batches."""
    total: int
    changed: int
    """The number of packages whose rows this batch created or replaced."""
    failed: dict[str, str]
    """Package to the reason of its failure. The gateway retries by itself."""
    next_cursor: str | None
    """The cursor of the next batch. Null: the backfill is complete."""


MAX_QUERY_CHARS: Final = 1_024  # a paragraph; more words only blur the query
FOUND: Final = 20  # a screen
BATCH: Final = 20  # keeps a progress bar moving
MAX_BATCH: Final = 100  # `BATCH_S` ends a batch of large packages sooner
BATCH_S: Final = 2.0  # a batch ends after the package that passes this time


_SEARCH: Final = (
    Parameter("q", f"What the tool should do, in any language: up to {MAX_QUERY_CHARS} characters."),
    Parameter("category", "Only tools of the category with this name."),
    Parameter("tag", "Only tools of packages with this tag."),
    Parameter("server", "Only tools of this package or server."),
    Parameter("readOnly", "Only tools that their servers mark as read-only.", "flag"),
    Parameter("limit", f"The maximum number of results: 1 to {MAX_PAGE}. Default: {FOUND}.", "number"),
    Parameter(
        "cursor",
        f"The `next_cursor` of the previous page. A search has at most {catalog.MAX_FOUND} results."
        f"The `next_cursor` of the previous page. A search returns at most {catalog.MAX_FOUND} results.",
    ),
)


@get("/api/catalog", "agent", "List the categories of the catalog", query=PAGING)
async def show_categories(control: Control, call: RestCall[None]) -> CategoriesResponse:
    """Every category with packages that the caller can reach.

    Use `id` in paths. It is the name with `~` written as `~0` and `/` as `~1`; the category `search` has the
    id `~search`.
    """
    groups = catalog.group_packages(await catalog.find_visible(control, call.caller))
    page, next_cursor = call.page().cut(list(groups.items()), itemgetter(0))
    shown = [
        CategoryShown(
            id=category_id,
            name=catalog.category_of(packages[0][0]),
            packageCount=len(packages),
            toolCount=sum(map(catalog.count_tools, packages)),
        )
        for category_id, packages in page
    ]
    return CategoriesResponse(categories=shown, next_cursor=next_cursor)


@get("/api/catalog/search", "agent", "Search the catalog", CatalogSearchResponse, query=_SEARCH)
async def search_tools(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The tools that match the query, among those that the caller can reach. Without a query: all tools, by
    name."""
    query = call.query
    if len(query.get("q", "")) > MAX_QUERY_CHARS:
        raise InvalidRequest(f"`q` is longer than {MAX_QUERY_CHARS} characters", hint="shorten the query")
    search = catalog.CatalogQuery(
        text=query.get("q", "").strip(),
        category=query.get("category", ""),
        tag=query.get("tag", ""),
        server=query.get("server", ""),
        is_read_only=call.flag("readOnly"),
    )
    page = call.page(default=FOUND)
    found = await catalog.search_catalog(control, await catalog.find_visible(control, call.caller), search)
    # The cursor is a position: a ranking has no other order.
    placed = list(enumerate(found))
    cut, next_cursor = page.cut(placed, lambda one: f"{one[0]:08}", bytes_of=lambda one: _measure_row(one[1]))
    tools = [
        {**_show_tool(row), "serverId": row.package_id, "serverName": row.package_name} for _, row in cut
    ]
    is_indexed = control.catalog.indexed.is_set()
    return {"tools": tools, "total": len(found), "next_cursor": next_cursor, "indexed": is_indexed}


@get("/api/catalog/{category}", "agent", "List the packages of a category", query=PAGING)
async def show_category(control: Control, call: RestCall[None]) -> CatalogPackagesResponse:
    """The packages of a category, and the servers without a package, that the caller can reach."""
    found = catalog.list_packages(await catalog.find_visible(control, call.caller), call.ids["category"])
    page, next_cursor = call.page().cut(found, lambda rows: rows[0].package_id)
    shown = [_show_package(rows, control.catalog.packages.get(rows[0].package_id)) for rows in page]
    return CatalogPackagesResponse(packages=shown, next_cursor=next_cursor)


@get(
    "/api/catalog/{package}/tools", "agent", "List the tools of a package", CatalogToolsResponse, query=PAGING
)
async def show_tools(control: Control, call: RestCall[None]) -> Mapping[str, Any]:
    """The tools of a package that the caller can reach, with their full schemas."""
    found = catalog.read_package(await catalog.find_visible(control, call.caller), call.ids["package"])
    rows, next_cursor = call.page().cut(found, lambda row: row.tool_name, bytes_of=_measure_row)
    return {"tools": list(map(_show_tool, rows)), "next_cursor": next_cursor}


@get(
    "/api/v1/catalog/quality",
    "agent",
    "Show the quality of the catalog",
    query=(Parameter("dependent", "Only packages that depend on the summary fallback.", "flag"), *PAGING),
)
async def show_quality(control: Control, call: RestCall[None]) -> CatalogQualityResponse:
    """The number of catalog rows with full definitions, and the packages that depend on the summary fallback.

    Viewers, publishers and admins see the whole catalog, including hidden rows. An agent sees the quality of
    the rows that it can see.
    """
    quality, rows = await catalog.read_quality(control, call.caller)
    total, has_ended, packages = quality.total, quality.has_ended, sorted(quality.packages.items())
    dependent = [one for one in packages if one[1].fallback]
    page, next_cursor = call.page().cut(dependent if call.flag("dependent") else packages, itemgetter(0))
    return CatalogQualityResponse(
        total=QualityShown.of(total),
        full_percent=total.full_percent,
        summary_fallback=quality.ends_at,
        fallback_ended=has_ended,
        dependent=len(dependent),
        packages=[
            PackageQualityShown.of(
                one,
                id=package_id,
                name=rows[package_id][0].package_name if rows[package_id] else package_id,
                hidden=one.fallback if has_ended else 0,
            )
            for package_id, one in page
        ],
        next_cursor=next_cursor,
    )


@post(
    "/admin/api/catalog/backfill",
    "admin",
    "Backfill the catalog",
    query=(
        Parameter("limit", f"Packages in this batch: 1 to {MAX_BATCH}. Default: {BATCH}.", "number"),
        Parameter("cursor", "The `next_cursor` of the previous batch."),
    ),
    errors=(StorageFailed,),
)
async def run_backfill(control: Control, call: RestCall[NoBody]) -> BackfillResponse:
    """Create the rows of the next packages, except for rows that are up to date.

    Start without a cursor, and repeat with `next_cursor` until it is null. To resume after an interruption,
    start again: finished packages are skipped.
    """
    check_unbounded(call.caller, "the catalog is shared by all callers")
    page, packages = call.page(default=BATCH), sorted(control.gateway.snapshot.servers)
    done, changed, failed = bisect_right(packages, page.after), 0, {}
    clock = asyncio.get_running_loop().time
    end_s = clock() + BATCH_S
    for package_id in packages[done : done + min(page.limit, MAX_BATCH)]:
        try:
            changed += await control.catalog.make(package_id)
        except ToolgateError as exc:
            failed[package_id] = str(exc)
        done += 1
        if clock() >= end_s:
            break
    return BackfillResponse(
        done=done,
        total=len(packages),
        changed=changed,
        failed=failed,
        next_cursor=encode_cursor(packages[done - 1]) if done < len(packages) else None,
    )


def _show_package(rows: Sequence[CatalogRow], installed: Package | None) -> CatalogPackageShown:
    row = rows[0]
    return CatalogPackageShown.of(
        installed or row,
        id=row.package_id,
        name=row.package_name,
        description=row.package_description,
        tags=row.tags,
        toolCount=catalog.count_tools(rows),
        tokens=sum(one.tokens for one in rows),
        version=None if installed is None else installed.version,
    )


def _show_tool(row: CatalogRow) -> dict[str, Any]:
    """A tool as the API shows it; schemas are the stored bytes."""
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
