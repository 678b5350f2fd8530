"""`toolgate nodes`: the nodes that follow this control, as they last reported."""

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.servers import render_nodes

app = typer.Typer(add_completion=False)


@app.command("nodes")
@spread_options
def nodes_command(connection: GatewayConnection) -> None:
    """List the nodes with the revision each serves, and when it last reported."""
    with connection.open() as client:
        answer = client.get("/admin/api/nodes")
    connection.output.show(answer["nodes"], render_nodes(answer))
