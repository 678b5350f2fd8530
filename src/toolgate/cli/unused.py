"""`toolgate unused`: what is granted and nobody uses."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection, SinceOption, parse_time
from toolgate.cli.render.learning import render_unused

app = typer.Typer(add_completion=False)


@app.command("unused")
@spread_options
def unused_command(
    connection: GatewayConnection,
    *,
    since: SinceOption = "30d",
    task: Annotated[str | None, Option("--task", help="Only this task, tool by tool.")] = None,
    key: Annotated[str | None, Option("--key", help="Only this key, tool by tool.")] = None,
) -> None:
    """Show which tools tasks grant, and keys let through, that nobody used; and which servers nobody uses.

    \b
    toolgate unused --since 90d
    toolgate unused --task review
    """
    named = {"task": task, "key": key}
    query = {name: value for name, value in named.items() if value is not None}
    with connection.open() as client:
        answer = _all_pages(client, {**query, "since": str(parse_time(since))})
    connection.output.show(answer, render_unused(answer, is_one=bool(query)))


def _all_pages(client: RestClient, query: Mapping[str, str]) -> dict[str, Any]:
    """The first page, with the holders of all."""
    first: dict[str, Any] = client.get("/admin/api/unused", query)
    cursor = first["next_cursor"]
    while cursor is not None:
        page = client.get("/admin/api/unused", {**query, "cursor": cursor})
        first["holders"] += page["holders"]
        cursor = page["next_cursor"]
    return {**first, "next_cursor": None}
