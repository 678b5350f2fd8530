"""`toolgate price`: what the definitions of a URL's tools cost a model, beside what all of them would."""

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render.scope import render_price

app = typer.Typer(add_completion=False)


@app.command("price")
@spread_options
def price_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """Show what each tool of a URL costs a model in tokens, their sum, and what the full set would cost."""
    with connection.open() as client:
        answer = client.get("/api/v1/mcp/scope", scope.query)
    connection.output.show(answer, render_price(answer))
