"""The catalog over REST: browsing by category and package, search, and going through it as a whole.

What follows `/api/catalog/` is `search` or the id of a category, and nothing else; a package always has
`/tools` behind it. So a category and a package may have the same name.
"""

from typing import Any, Final

import msgspec

from toolgate.catalog.quality import Quality
from toolgate.errors import InvalidRequest, NotFound, StorageFailed
from toolgate.govern.backfill import MAX_BATCH, backfill
from toolgate.govern.catalog import (
    MAX_FOUND,
    CatalogPackage,
    Wanted,
    category_of,
    keeper_of,
    list_categories,
    list_packages,
    read_package,
    search,
    visible,
)
from toolgate.govern.catalog_quality import PackageQuality, view_quality
from toolgate.govern.changes.permissions import check_boundless
from toolgate.govern.control import Control
from toolgate.model.packages import CatalogRow
from toolgate.surfaces.rest.catalog_shapes import (
    BackfillAnswer,
    CatalogPackagesAnswer,
    CatalogPackageShown,
    CatalogQualityAnswer,
    CatalogSearchAnswer,
    CatalogToolsAnswer,
    CategoriesAnswer,
    CategoryShown,
    PackageQualityShown,
    QualityShown,
)
from toolgate.surfaces.rest.framework.paging import MAX_PAGE, PAGING, encode_cursor, parse_page
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import NOTHING, Call, Endpoint, Parameter

MAX_QUERY_CHARS: Final = 1_024
FOUND: Final = 20
BATCH: Final = 20


async def show_categories(control: Control, call: Call[None]) -> Answer:
    """Every category with something in it that the caller can reach, and how much.

    The `id` is what stands in a path. It is the name, but `~` is written `~0` there and `/` `~1`, and the
    category `search` is `~search`.
    """
    found = list_categories(await visible(control, call.caller))
    page, next_cursor = parse_page(call.query).cut(found, lambda one: one.id)
    shown = [
        CategoryShown(id=one.id, name=one.name, packageCount=one.packages, toolCount=one.tools)
        for one in page
    ]
    return Answer(CategoriesAnswer(categories=shown, next_cursor=next_cursor))


async def show_category(control: Control, call: Call[None]) -> Answer:
    """The packages of a category, and the servers without one, as far as the caller can reach them."""
    found = list_packages(control, await visible(control, call.caller), call.ids["category"])
    page, next_cursor = parse_page(call.query).cut(found, lambda one: one.package_id)
    return Answer(CatalogPackagesAnswer(packages=list(map(_show_package, page)), next_cursor=next_cursor))


async def show_tools(control: Control, call: Call[None]) -> Answer:
    """The tools of a package that the caller can reach, with their whole schemas."""
    package = read_package(control, await visible(control, call.caller), call.ids["package"])
    page = parse_page(call.query)
    rows, next_cursor = page.cut(package.rows, lambda row: row.tool_name, bytes_of=_bytes)
    return Answer({"tools": list(map(_show_tool, rows)), "next_cursor": next_cursor})


async def search_tools(control: Control, call: Call[None]) -> Answer:
    """Tools that suit the words, among those that the caller can reach; without words, all by name."""
    query = call.query
    if len(query.get("q", "")) > MAX_QUERY_CHARS:
        raise InvalidRequest(f"`q` is longer than {MAX_QUERY_CHARS} characters", hint="say it in fewer words")
    wanted = Wanted(
        query=query.get("q", "").strip(),
        category=query.get("category", ""),
        tag=query.get("tag", ""),
        server=query.get("server", ""),
        is_read_only=call.flag("readOnly"),
    )
    page = parse_page({"limit": str(FOUND), **query})
    found = await search(control, await visible(control, call.caller), wanted)
    # By place: a ranking has no other order.
    placed = list(enumerate(found))
    cut, next_cursor = page.cut(placed, lambda one: f"{one[0]:08}", bytes_of=lambda one: _bytes(one[1]))
    tools = [
        {**_show_tool(row), "serverId": row.package_id, "serverName": row.package_name} for _, row in cut
    ]
    is_indexed = keeper_of(control).is_indexed
    return Answer({"tools": tools, "total": len(found), "next_cursor": next_cursor, "indexed": is_indexed})


async def show_quality(control: Control, call: Call[None]) -> Answer:
    """How many rows of the catalog have full definitions, and which packages depend on the summary fallback.

    Viewers, publishers and administrators see the whole catalog, hidden rows included. An agent sees the
    quality of the rows that it can see.
    """
    view = await view_quality(control, call.caller)
    listed = view.dependent if call.flag("dependent") else view.packages
    page, next_cursor = parse_page(call.query).cut(listed, lambda one: one.package_id)
    return Answer(
        CatalogQualityAnswer(
            total=QualityShown(**_count_rows(view.total)),
            full_percent=view.total.full_percent,
            summary_fallback=view.ends_at,
            fallback_ended=view.has_ended,
            dependent=len(view.dependent),
            packages=[_show_quality(one, is_hidden=view.has_ended) for one in page],
            next_cursor=next_cursor,
        )
    )


def _show_quality(package: PackageQuality, *, is_hidden: bool) -> PackageQualityShown:
    return PackageQualityShown(
        id=package.package_id,
        name=package.name,
        hidden=package.quality.fallback if is_hidden else 0,
        **_count_rows(package.quality),
    )


def _count_rows(quality: Quality) -> dict[str, int]:
    return {name: getattr(quality, name) for name in QualityShown.__struct_fields__}


async def run_backfill(control: Control, call: Call[Any]) -> Answer:
    """Make the rows of the next packages, as far as they are not made of what there is.

    Begin without a cursor, and go on with the one of the answer until it is null. A run that was cut off is
    taken up by beginning again: what is done is passed over.
    """
    check_boundless(call.caller, "the catalog is for all callers")
    page = parse_page({"limit": str(BATCH), **call.query})
    done = await backfill(control, after=page.after, limit=min(page.limit, MAX_BATCH))
    return Answer(
        BackfillAnswer(
            done=done.done,
            total=done.total,
            changed=done.changed,
            failed=dict(done.failed),
            next_cursor=None if done.after is None else encode_cursor(done.after),
        )
    )


def _show_package(package: CatalogPackage) -> CatalogPackageShown:
    row = package.rows[0]
    return CatalogPackageShown(
        id=package.package_id,
        name=row.package_name,
        description=row.package_description,
        toolCount=package.tools,
        tokens=sum(one.tokens for one in package.rows),
        tags=list(row.tags),
        version=None if package.installed is None else package.installed.version,
        source=package.source,
    )


def _show_tool(row: CatalogRow) -> dict[str, Any]:
    """What there is; schemas as the bytes they are kept in."""
    tool: dict[str, Any] = {
        "name": row.tool_name,
        "fullName": row.full_name,
        "description": row.description,
        "inputSchema": msgspec.Raw(row.input_schema),
        "category": category_of(row),
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


def _bytes(row: CatalogRow) -> int:
    return len(row.input_schema) + len(row.output_schema or b"") + len(row.description)


_SEARCH: Final = (
    Parameter("q", f"What the tool should do, in any language: up to {MAX_QUERY_CHARS} characters."),
    Parameter("category", "Only tools of the category with this name."),
    Parameter("tag", "Only tools of packages with this tag."),
    Parameter("server", "Only tools of this package or server."),
    Parameter("readOnly", "Only tools that say of themselves that they change nothing.", form="flag"),
    Parameter("limit", f"How many at most: 1 to {MAX_PAGE}, {FOUND} unless said otherwise.", form="number"),
    Parameter("cursor", f"The `next_cursor` of the page before. At most {MAX_FOUND} can be looked at."),
)

ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/api/catalog",
        role="agent",
        summary="List the categories of the catalog",
        handler=show_categories,
        query=PAGING,
        answer=CategoriesAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/catalog/search",
        role="agent",
        summary="Search the catalog",
        handler=search_tools,
        query=_SEARCH,
        answer=CatalogSearchAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/catalog/{category}",
        role="agent",
        summary="List the packages of a category",
        handler=show_category,
        query=PAGING,
        answer=CatalogPackagesAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/catalog/{package}/tools",
        role="agent",
        summary="List the tools of a package",
        handler=show_tools,
        query=PAGING,
        answer=CatalogToolsAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/catalog/quality",
        role="agent",
        summary="Show the quality of the catalog",
        handler=show_quality,
        query=(
            Parameter("dependent", "Only packages that depend on the summary fallback.", form="flag"),
            *PAGING,
        ),
        answer=CatalogQualityAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="POST",
        path="/admin/api/catalog/backfill",
        role="admin",
        summary="Fill the catalog",
        handler=run_backfill,
        body=NOTHING,
        query=(
            Parameter(
                "limit", f"Packages in this batch: 1 to {MAX_BATCH}, {BATCH} unless said.", form="number"
            ),
            Parameter("cursor", "The `next_cursor` of the batch before."),
        ),
        answer=BackfillAnswer,
        errors=(NotFound, StorageFailed),
    ),
)
