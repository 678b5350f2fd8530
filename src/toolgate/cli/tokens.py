"""`toolgate tokens`: what lists of tools and results of calls have cost models, and what was saved."""

from typing import Annotated

import typer
from typer import Option

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.scope import render_token_days, render_token_tasks

app = typer.Typer(add_completion=False)


@app.command("tokens")
@spread_options
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
