"""`toolgate reload`: read the directory of server records again."""

from typing import Annotated

import typer
from typer import Option

from toolgate.cli.failure import ExitCode
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_reload

app = typer.Typer(add_completion=False)


@app.command("reload")
@spread_options
def reload_command(
    connection: GatewayConnection,
    *,
    is_dry_run: Annotated[bool, Option("--dry-run", help="Show the difference; change nothing.")] = False,
) -> None:
    """Read the registry directory again; exit code 1 if a file in it is wrong."""
    with connection.open() as client:
        answer = client.post("/admin/api/registry/reload", query={"dry_run": "true"} if is_dry_run else None)
    connection.output.show(answer, render_reload(answer, is_dry_run=is_dry_run))
    if answer.get("problems"):
        raise typer.Exit(ExitCode.FAILED)
