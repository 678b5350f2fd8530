"""`toolgate backup`: a running gateway writes its registry into a file."""

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_backup

app = typer.Typer(add_completion=False)


@app.command("backup")
@spread_options
def backup_command(connection: GatewayConnection) -> None:
    """Have the gateway write all records and their history into a file in its data directory.

    The file is on the gateway's machine, and `toolgate import` reads it. Nothing has to be stopped.
    """
    with connection.open() as client:
        answer = client.post("/admin/api/backup")
    connection.output.show(answer, render_backup(answer))
