"""Browses the catalog for a caller: categories, their packages, tools, search, and its quality.

Every function reads only the rows that the caller may see. So nothing else can leak: no count, no name, no
similar name in a hint.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Final, NamedTuple

from toolgate.catalog.rows import CatalogQuality
from toolgate.errors import NotFound
from toolgate.gateway.auth.identity import reaches
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.control import Control
from toolgate.govern.visibility import Rows, VisibleCatalog
from toolgate.model.packages import ALL_TOOLS, UNCATEGORIZED, CatalogRow
from toolgate.model.principals import Principal
from toolgate.policy.lint import LintFinding

SEARCH: Final = "search"
"""A path segment that cannot be the id of a category."""
MAX_FOUND: Final = 1_000  # the most hits of one search; a choice: better words find more than more pages
MAX_NAME_CHARS: Final = 100  # of an unknown name, in messages and comparisons


class CatalogQuery(NamedTuple):
    """The query and filters of a search. An empty one matches all rows."""

    text: str = ""
    category: str = ""
    tag: str = ""
    server: str = ""
    is_read_only: bool = False

    def admits(self, row: CatalogRow) -> bool:
        return (
            (not self.category or category_of(row) == self.category)
            and (not self.tag or self.tag in row.tags)
            and (not self.server or row.package_id == self.server)
            and (not self.is_read_only or row.is_read_only)
        )


async def find_visible(control: Control, principal: Principal) -> VisibleCatalog:
    return await control.visibility.of(control.gateway, control.catalog, principal)


def category_of(row: CatalogRow) -> str:
    return row.category or UNCATEGORIZED


def category_id(name: str) -> str:
    """The name as one path segment, with `~` and `/` escaped, and never the segment of search."""
    name = name.replace("~", "~0").replace("/", "~1")
    # Clients and proxies resolve one or two dots as directories.
    return f"~{name}" if name in {SEARCH, ".", ".."} else name


def count_tools(rows: Iterable[CatalogRow]) -> int:
    """The number of known tools, without the row for unknown ones."""
    return sum(row.tool_name != ALL_TOOLS for row in rows)


def group_packages(shown: VisibleCatalog) -> Mapping[str, Sequence[Sequence[CatalogRow]]]:
    """The rows of each package, by the id of its category. Both are sorted by id."""
    groups: dict[str, list[Sequence[CatalogRow]]] = defaultdict(list)
    for rows in shown.packages.values():
        groups[category_id(category_of(rows[0]))].append(rows)
    return dict(sorted(groups.items()))


def list_packages(shown: VisibleCatalog, category: str) -> Sequence[Sequence[CatalogRow]]:
    """The rows of each package of the category with this id, sorted by package. Raises NotFound."""
    groups = group_packages(shown)
    if category in groups:
        return groups[category]
    if category in shown.packages:
        hint = f"`{category}` is a package: get `/api/catalog/{category}/tools`"
    else:
        names = {one: category_of(packages[0][0]) for one, packages in groups.items()}
        hint = _suggest_similar(category, names, "categories")
    raise NotFound(f"no category `{category[:MAX_NAME_CHARS]}`", hint=hint)


def read_package(shown: VisibleCatalog, package_id: str) -> Sequence[CatalogRow]:
    """The rows of one package, or of a server without one. Raises NotFound."""
    if package_id in shown.packages:
        return shown.packages[package_id]
    if package_id in group_packages(shown):
        hint = f"`{package_id}` is a category: get `/api/catalog/{package_id}`"
    else:
        hint = _suggest_similar(package_id, {one: one for one in shown.packages}, "packages")
    raise NotFound(f"no package `{package_id[:MAX_NAME_CHARS]}`", hint=hint)


async def search_catalog(
    control: Control, shown: VisibleCatalog, query: CatalogQuery
) -> Sequence[CatalogRow]:
    """The matching rows, best first. Without a query: all rows that pass the filters, by name."""
    rows = shown.rows
    if query._replace(text="") != CatalogQuery():
        rows = {name: row for name, row in rows.items() if query.admits(row)}
    if not query.text:
        return list(rows.values())
    with suppress(TimeoutError):
        async with asyncio.timeout(control.limits.search_wait_s):
            await control.catalog.indexed.wait()
    hits = await control.catalog.searching.search(query.text, limit=MAX_FOUND, within=rows)
    return [rows[key] for key in hits if key in rows]


def _suggest_similar(text: str, names: Mapping[str, str], what: str) -> str:
    close = get_close_matches(text[:MAX_NAME_CHARS], {*names, *names.values()}, n=3)
    if not close:
        return f"list the {what} that you can see" if names else "the catalog has nothing that you can see"
    return "did you mean " + ", ".join(f"`{one}`" for one in sorted(close)) + "?"


async def read_quality(control: Control, principal: Principal) -> tuple[CatalogQuality, Rows]:
    """The quality of all rows, and these rows; for an agent, of those it sees, without the setting."""
    if reaches(principal.role, "viewer"):
        return control.catalog.quality, control.catalog.rows
    shown, quality = (await find_visible(control, principal)).packages, CatalogQuality()
    for package_id, rows in shown.items():
        quality.put(package_id, rows)
    return quality, shown


def find_fallback_rows(catalog: CatalogProjection) -> list[LintFinding]:
    """A finding for each package that loses rows when the fallback ends; empty if it never ends."""
    measured = catalog.quality
    if measured.ends_at is None:
        return []
    share = f"{measured.total.full_percent:g} % of the catalog is complete"
    what = "are hidden" if measured.has_ended else f"will be hidden at {measured.ends_at:g} %"
    return [
        LintFinding(
            code="summary_only",
            kind="server",
            id=package_id,
            rule="summary_fallback",
            subject=f"{quality.fallback} of {quality.rows} rows",
            message=f"these rows have no full definition, and {what} ({share}): publish a manifest with "
            "`tools`, or let the server list its tools",
        )
        for package_id, quality in sorted(measured.packages.items())
        if quality.fallback
    ]
