"""`toolgate tools`: exactly what a client sees at a URL."""

import typer

from toolgate.cli.options import Connection, ScopeOptions
from toolgate.cli.render.scope import render_tools
from toolgate.cli.spreading import spread_options

app = typer.Typer(add_completion=False)


@app.command("tools")
@spread_options
def tools_command(scope: ScopeOptions, connection: Connection) -> None:
    """List the tools of a URL, with their tokens and the rule that allows each."""
    with connection.open() as client:
        answer = client.get("/api/v1/mcp/tools", scope.query)
    connection.output.show(answer["tools"], render_tools(answer))
