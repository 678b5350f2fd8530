"""`toolgate tools`: exactly what a client sees at a URL."""

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render.scope import render_tools

app = typer.Typer(add_completion=False)


@app.command("tools")
@spread_options
def tools_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """List the tools of a URL, with their tokens and the rule that allows each."""
    with connection.open() as client:
        answer = client.get("/api/v1/mcp/tools", scope.query)
    connection.output.show(answer["tools"], render_tools(answer))
