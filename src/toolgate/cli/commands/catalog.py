"""`toolgate catalog`: what there is to choose from, by category, by package, and by words."""

from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from typer import Argument, Context, Option

from toolgate.cli.failure import CommandError
from toolgate.cli.option_groups import add_group, command, group_command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import open_console
from toolgate.cli.render.catalog import (
    render_backfill,
    render_catalog_tools,
    render_categories,
    render_category,
    render_found,
    render_quality,
)

CATALOG: Final = "/api/catalog"
BACKFILL: Final = "/admin/api/catalog/backfill"
QUALITY: Final = "/api/v1/catalog/quality"


@dataclass(frozen=True, kw_only=True)
class CatalogFilter:
    """What is searched in."""

    category: Annotated[str | None, Option("--category", help="Only of this category.")] = None
    tag: Annotated[str | None, Option("--tag", help="Only of packages with this tag.")] = None
    server: Annotated[str | None, Option("--server", help="Only of this package or server.")] = None
    read_only: Annotated[bool, Option("--read-only", help="Only what says that it changes nothing.")] = False

    @property
    def query(self) -> dict[str, str]:
        given = {"category": self.category, "tag": self.tag, "server": self.server}
        query = {name: value for name, value in given.items() if value is not None}
        return {**query, "readOnly": "true"} if self.read_only else query


app = typer.Typer(add_completion=False)
catalog_app = add_group(app, "catalog", "The catalog: what there is to choose from.", is_command=True)


@group_command(catalog_app)
def catalog_command(context: Context, connection: GatewayConnection) -> None:
    """The catalog: what there is to choose from."""
    if context.invoked_subcommand is None:
        _list(connection)


@command(catalog_app, "list")
def list_command(connection: GatewayConnection) -> None:
    """List the categories, with how many packages and tools each has for you."""
    _list(connection)


@command(catalog_app, "show")
def show_command(
    name: Annotated[str, Argument(help="A category, or else a package.", show_default=False)],
    connection: GatewayConnection,
    *,
    package: Annotated[
        bool, Option("--package", help="Take the name for that of a package, whatever else has it.")
    ] = False,
) -> None:
    """Show the packages of a category, or the tools of a package."""
    with connection.open() as client:
        categories = [] if package else client.pages(CATALOG, "categories")
        found = next((one for one in categories if name in {one["name"], one["id"]}), None)
        if found is not None:
            packages = client.pages(f"{CATALOG}/{quote(found['id'], safe='')}", "packages")
            connection.output.show(packages, render_category(found, packages))
            return
        tools = client.pages(f"{CATALOG}/{quote(name, safe='')}/tools", "tools")
    connection.output.show(tools, render_catalog_tools(name, tools))


@command(catalog_app, "search")
def search_command(
    words: Annotated[
        list[str], Argument(help="What the tool should do, in any language.", show_default=False)
    ],
    narrowed: CatalogFilter,
    connection: GatewayConnection,
    *,
    limit: Annotated[int, Option("--limit", min=1, max=1_000, help="How many to show.")] = 10,
) -> None:
    """Find tools by what they do, the best first."""
    query = {"q": " ".join(words), "limit": str(limit), **narrowed.query}
    with connection.open() as client:
        answer = client.get(f"{CATALOG}/search", query)
    connection.output.show(answer["tools"], render_found(answer))


@command(catalog_app, "quality")
def quality_command(
    connection: GatewayConnection,
    *,
    every: Annotated[
        bool, Option("--all", help="All packages, not only those that depend on the summary fallback.")
    ] = False,
) -> None:
    """Show how many tools of the catalog have full definitions, and which packages depend on the fallback.

    A package depends on it while some of its tools are known by name and description alone, or not at all.
    The setting `summary_fallback` ends the fallback from a percentage on: these rows are then hidden.
    """
    query = {} if every else {"dependent": "true"}
    with connection.open() as client:
        answer = client.get(QUALITY, query)
        packages = client.pages(QUALITY, "packages", query) if answer["next_cursor"] else answer["packages"]
    shown = {name: value for name, value in answer.items() if name != "next_cursor"} | {"packages": packages}
    connection.output.show(shown, render_quality(shown, every=every))


@command(catalog_app, "backfill")
def backfill_command(connection: GatewayConnection) -> None:
    """Make the rows of the catalog that are missing or old, of every package and server.

    The gateway does so by itself when something changes. If this is cut off, run it again: what is done is
    passed over.
    """
    changed, failed = 0, dict[str, str]()
    console = open_console(to_stderr=True)
    bar = Progress(TextColumn("filling the catalog"), BarColumn(), MofNCompleteColumn(), console=console)
    bar.disable = connection.as_json or not console.is_terminal
    with connection.open() as client, bar:
        step, cursor = bar.add_task("", total=None), None
        while True:
            answer = client.post(BACKFILL, query={} if cursor is None else {"cursor": cursor})
            changed += answer["changed"]
            failed |= answer["failed"]
            bar.update(step, completed=answer["done"], total=answer["total"])
            if (cursor := answer["next_cursor"]) is None:
                break
    done = {"done": answer["done"], "total": answer["total"], "changed": changed, "failed": failed}
    connection.output.show(done, render_backfill(done))
    if failed:
        raise CommandError(
            f"{len(failed)} of {done['total']} could not be made",
            hint="the gateway tries again by itself; its log says more",
        )


def _list(connection: GatewayConnection) -> None:
    with connection.open() as client:
        categories = client.pages(CATALOG, "categories")
    connection.output.show(categories, render_categories(categories))
