"""`toolgate nodes`, `budgets`, `tokens` and `version`."""

import platform
import time
from typing import Annotated

import typer
from rich.text import Text
from typer import Option

from toolgate import __version__
from toolgate.cli.option_groups import command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.records import render_budgets
from toolgate.cli.render.scope import render_token_days, render_token_tasks
from toolgate.cli.render.servers import render_nodes

app = typer.Typer(add_completion=False)


@command(app, "nodes")
def nodes_command(connection: GatewayConnection) -> None:
    """List the nodes with the revision each serves, and when it last reported."""
    connection.print_answer("/admin/api/nodes", render_nodes, member="nodes")


@command(app, "budgets")
def budgets_command(connection: GatewayConnection) -> None:
    """Show the budgets of keys and tasks over time: what is used at all nodes together, and when each resets.

    \b
    toolgate keys add ci --calls-per-minute 60 --tokens-per-day 1000000
    toolgate budgets
    """
    with connection.open() as client:
        found = client.pages("/admin/api/budgets", "budgets")
    connection.output.show(found, render_budgets(found, time.time()))


@command(app, "tokens")
def tokens_command(
    connection: GatewayConnection,
    *,
    days: Annotated[int, Option("--days", min=1, max=366, help="How many days, today included.")] = 7,
    task: Annotated[
        str | None, Option("--task", help="Only this task, day by day. Empty: callers without one.")
    ] = None,
) -> None:
    """Show what tools cost models in tokens, task by task: definitions, results, and what is saved.

    \b
    toolgate tokens --days 30
    toolgate tokens --task review
    """
    query = {"days": str(days)} | ({} if task is None else {"task": task})
    with connection.open() as client:
        answer = client.get("/admin/api/tokens", query)
    connection.output.show(answer, (render_token_tasks if task is None else render_token_days)(answer))


@app.command("version")
def version_command(
    *, as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False
) -> None:
    """Print the version of this program."""
    facts = {"toolgate": __version__, "python": platform.python_version(), "platform": platform.system()}
    line = f"toolgate {__version__} (Python {facts['python']}, {facts['platform']})"
    CommandOutput(as_json=as_json).show(facts, Text(line))
