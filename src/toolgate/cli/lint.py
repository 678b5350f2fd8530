"""`toolgate lint`: rules that do not do what their author meant."""

import typer

from toolgate.cli.failure import Exit
from toolgate.cli.options import Connection
from toolgate.cli.render.changes import render_lint
from toolgate.cli.spreading import spread_options

app = typer.Typer(add_completion=False)


@app.command("lint")
@spread_options
def lint_command(connection: Connection) -> None:
    """Find rules that match nothing; exit code 1 if there are any."""
    with connection.open() as client:
        findings = client.get("/admin/api/lint")["findings"]
    connection.output.show(findings, render_lint(findings))
    if findings:
        raise typer.Exit(Exit.FAILED)
