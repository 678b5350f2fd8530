"""`toolgate lint`: rules that do not do what their author meant."""

import typer

from toolgate.cli.failure import ExitCode
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_lint

app = typer.Typer(add_completion=False)


@app.command("lint")
@spread_options
def lint_command(connection: GatewayConnection) -> None:
    """Find rules that match nothing, and literals in records that may be secrets.

    Exit code 0: every rule was judged, and none is wrong. 1: something was found. 5: nothing was found, and
    some rules could not be judged, because a server has not listed its tools.
    """
    with connection.open() as client:
        answer = client.get("/admin/api/lint")
    findings, unjudged = answer["findings"], answer.get("unjudged", [])
    connection.output.show([*findings, *unjudged], render_lint(findings, unjudged))
    if findings or unjudged:
        raise typer.Exit(ExitCode.FAILED if findings else ExitCode.INCOMPLETE)
