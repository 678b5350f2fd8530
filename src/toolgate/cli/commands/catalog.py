"""`toolgate catalog`: the tools of all packages and servers, by category, by package and by search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text
from typer import Argument, Option

from toolgate.cli.command import CommandError, add_group, command, open_console
from toolgate.cli.options import GatewayConnection, add_list_commands
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import build_path

_UNKNOWN = "the server has not listed its tools so far"
_INDEXING = "the gateway has just started and still indexes tools: search again to find more"


def render_categories(categories: Sequence[JsonObject]) -> RenderableType:
    if not categories:
        return Text("the catalog contains nothing that this key can reach")
    rows = ((ui.bold(one["name"]), one["packageCount"], one["toolCount"]) for one in categories)
    table = ui.grid("CATEGORY", ">PACKAGES", ">TOOLS", rows=rows)
    return ui.stack_parts(table, Text("`toolgate catalog get CATEGORY` lists its packages", style=ui.DIM))


def render_category(category: JsonObject, packages: Sequence[JsonObject]) -> RenderableType:
    """One line per package, with what it is for."""
    table = ui.grid("PACKAGE", "VERSION", ">TOOLS", "DESCRIPTION*")
    for one in packages:
        parts = [one["name"] if one["name"] != one["id"] else "", one["description"]]
        about = Text(": ").join([ui.cell(part) for part in parts if part])
        words = [part for part in (about, ui.join_names(one["tags"], ui.DIM)) if part.plain]
        table.add_row(ui.bold(one["id"]), one["version"], one["toolCount"] or "?", Text("  ").join(words))
    heading = ui.sentence(ui.bold(category["name"]), f": {ui.count_of(len(packages), 'package')}")
    return ui.stack_parts(
        heading, table, Text("`toolgate catalog get PACKAGE` lists its tools", style=ui.DIM)
    )


def render_catalog_tools(package_id: str, tools: Sequence[JsonObject]) -> RenderableType:
    known = [one for one in tools if one["name"] != "*"]
    heading = ui.sentence(ui.bold(package_id), f": {ui.count_of(len(known), 'tool')}")
    return ui.stack_parts(heading, *map(_render_tool, tools))


def render_found(response: JsonObject) -> RenderableType:
    """The tools found, best match first."""
    tools: Sequence[JsonObject] = response["tools"]
    # An older gateway does not report it.
    note = None if response.get("indexed", True) else Text(_INDEXING, style=ui.WARN)
    if not tools:
        nothing = "no match that this key can reach: try other words, or `toolgate catalog`"
        return ui.stack_parts(Text(nothing), note)
    shown = f"{len(tools)} of {response['total']:,} found"
    return ui.stack_parts(*map(_render_tool, tools), Text(shown, style=ui.DIM), note)


def render_backfill(done: JsonObject) -> RenderableType:
    text = f"{ui.count_of(done['total'], 'package')} checked, {done['changed']:,} updated"
    if not done["failed"]:
        return Text(text)
    rows = ((ui.bold(package_id), ui.cell(why, ui.BAD)) for package_id, why in done["failed"].items())
    return ui.stack_parts(Text(text), ui.unheaded_grid(2, rows))


_SOURCES = ("manifest", "discovered", "summary", "legacy")


def render_quality(response: JsonObject, *, every: bool) -> RenderableType:
    """The share of full definitions, and the packages that depend on the summary fallback."""
    total: JsonObject = response["total"]
    head = ui.sentence(
        Text(f"{response['full_percent']:g} %", style="bold"),
        f" of {ui.count_of(total['rows'], 'row')} have full definitions, "
        f"{total['with_schema']:,} a schema, {total['with_description']:,} a description",
    )
    table = ui.grid("PACKAGE", *(f">{name.upper()}" for name in _SOURCES), ">SCHEMAS", ">DESCRIBED", "")
    for one in response["packages"]:
        hidden = ui.cell(f"{one['hidden']:,} hidden", ui.WARN) if one["hidden"] else ""
        table.add_row(ui.bold(one["id"]), *_count_rows(one), hidden)
    table.add_row(ui.cell("all", ui.DIM), *_count_rows(total), "")
    listed = None
    if not every and not response["packages"]:
        listed = Text("no package depends on the summary fallback")
    return ui.stack_parts(head, Text(_describe_fallback(response)), listed, table)


def _count_rows(one: JsonObject) -> list[str]:
    return [f"{one[name]:,}" for name in (*_SOURCES, "with_schema", "with_description")]


def _describe_fallback(response: JsonObject) -> str:
    """What the setting does at this share, or would do."""
    ends_at, dependent = response["summary_fallback"], ui.count_of(response["dependent"], "package")
    if ends_at is None:
        return f"the summary fallback stays; without it {dependent} would lose rows"
    if response["fallback_ended"]:
        return f"the summary fallback is off from {ends_at:g} %: rows of {dependent} are hidden"
    return f"the summary fallback ends at {ends_at:g} %: {dependent} would lose rows"


def _render_tool(tool: JsonObject) -> RenderableType:
    """The name to copy, the tokens it costs, and what it does."""
    marks = [f"{tool['tokens']:,} tokens" if tool["tokens"] else "", "read-only" if tool["readOnly"] else ""]
    head = Text("  ").join([ui.bold(tool["fullName"]), *(ui.cell(one, ui.DIM) for one in marks if one)])
    table = ui.unheaded_grid(2)
    table.add_row("", ui.cell(tool["description"] or (_UNKNOWN if tool["name"] == "*" else "")))
    properties, required = tool["inputSchema"].get("properties"), tool["inputSchema"].get("required")
    if isinstance(properties, Mapping) and properties:
        needed = set(map(str, required)) if isinstance(required, list) else set()
        # Optional arguments end with a question mark.
        names = ui.join_names(name if name in needed else f"{name}?" for name in properties)
        table.add_row("", ui.sentence(Text("arguments: ", style=ui.DIM), names))
    return Group(head, table)


CATALOG: Final = "/api/catalog"


@dataclass(frozen=True, kw_only=True)
class CatalogFilter:
    """What the search is limited to."""

    category: Annotated[str | None, "Only in this category, as in `toolgate catalog list`."] = None
    tag: Annotated[str | None, "Only in packages with this tag."] = None
    server: Annotated[str | None, "Only in the package or server with this id."] = None
    read_only: Annotated[bool, "Only tools that are marked as read-only."] = False

    @property
    def query(self) -> dict[str, str | None]:
        given = {"category": self.category, "tag": self.tag, "server": self.server}
        return {**given, "readOnly": "true" if self.read_only else None}


app = typer.Typer(add_completion=False)
catalog_app = add_group(app, "catalog", is_command=True)


add_list_commands(
    catalog_app,
    "List the categories with their packages and tools.",
    CATALOG,
    "categories",
    render_categories,
)


@command(catalog_app, "get")
def show_command(
    name: Annotated[str, Argument(help="Category, as in `toolgate catalog list`, or package id.")],
    connection: GatewayConnection,
    *,
    package: Annotated[bool, "Read the name as a package id, even if a category has it."] = False,
) -> None:
    """Show the packages of a category, or the tools of a package."""
    with connection.open() as client:
        categories = [] if package else client.pages(CATALOG, "categories")
        found = next((one for one in categories if name in {one["name"], one["id"]}), None)
        if found is not None:
            packages = client.pages(build_path(CATALOG, found["id"]), "packages")
            connection.show(packages, render_category(found, packages))
            return
        tools = client.pages(build_path(CATALOG, name, "tools"), "tools")
    connection.show(tools, render_catalog_tools(name, tools))


@command(catalog_app, "search")
def search_command(
    words: Annotated[list[str], Argument(help="Words for what the tool does, in any language.")],
    narrowed: CatalogFilter,
    connection: GatewayConnection,
    *,
    limit: Annotated[int, Option(min=1, max=1_000, help="Number of tools to list, at most 1000.")] = 10,
) -> None:
    """Find tools by what they do, best match first."""
    query = {"q": " ".join(words), "limit": limit, **narrowed.query}
    connection.print_result(f"{CATALOG}/search", render_found, query, member="tools")


@command(catalog_app, "quality")
def quality_command(
    connection: GatewayConnection,
    *,
    every: Annotated[bool, "--all", "List all packages, not only those that depend on the fallback."] = False,
) -> None:
    """Show how many tools have full definitions.

    A package depends on the summary fallback while some of its tools are known by name and description
    alone, or not at all. The setting `summary_fallback` ends the fallback at a percentage: such rows are then
    hidden.
    """
    query = {"dependent": None if every else "true"}
    with connection.open() as client:
        shown = client.merge_pages("/api/v1/catalog/quality", "packages", query)
    del shown["next_cursor"]
    connection.show(shown, render_quality(shown, every=every))


@command(catalog_app, "backfill")
def backfill_command(connection: GatewayConnection) -> None:
    """Update missing and outdated rows of the catalog.

    The gateway does this by itself when something changes. If the command is interrupted, run it again: it
    skips what is up to date.
    """
    changed, failed = 0, dict[str, str]()
    console = open_console(to_stderr=True)
    bar = Progress(TextColumn("filling the catalog"), BarColumn(), MofNCompleteColumn(), console=console)
    bar.disable = connection.as_json or not console.is_terminal
    with connection.open() as client, bar:
        step, cursor = bar.add_task("", total=None), None
        while True:
            response = client.post("/admin/api/catalog/backfill", query={"cursor": cursor})
            changed += response["changed"]
            failed |= response["failed"]
            bar.update(step, completed=response["done"], total=response["total"])
            if (cursor := response["next_cursor"]) is None:
                break
    done = {"done": response["done"], "total": response["total"], "changed": changed, "failed": failed}
    connection.show(done, render_backfill(done))
    if failed:
        hint = "the gateway tries again by itself; see its log"
        raise CommandError(f"{len(failed)} of {done['total']} packages failed", hint=hint)
