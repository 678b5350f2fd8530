"""`toolgate budgets`: who may use how much over time, and what is used of it."""

import time

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.records import render_budgets

app = typer.Typer(add_completion=False)


@app.command("budgets")
@spread_options
def budgets_command(connection: GatewayConnection) -> None:
    """Show the budgets of keys and tasks over time: what is used at all nodes together, and when each resets.

    \b
    toolgate keys add ci --calls-per-minute 60 --tokens-per-day 1000000
    toolgate budgets
    """
    with connection.open() as client:
        found = client.pages("/admin/api/budgets", "budgets")
    connection.output.show(found, render_budgets(found, time.time()))
