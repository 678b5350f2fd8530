"""`toolgate uninstall`: a package leaves the gateway."""

from typing import Annotated

import typer
from typer import Option

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.package_sending import DryRunOption, build_package_path
from toolgate.cli.record_commands import ConditionOptions, IdArgument
from toolgate.cli.render.changes import render_records
from toolgate.cli.render.packages import render_uninstalled

app = typer.Typer(add_completion=False)


@app.command("uninstall")
@spread_options
def uninstall_command(
    package_id: IdArgument,
    connection: GatewayConnection,
    on: ConditionOptions,
    *,
    is_purged: Annotated[bool, Option("--purge", help="Also remove every archive of it.")] = False,
    is_dry_run: DryRunOption = False,
) -> None:
    """Remove a package with its server and its pin. What was uploaded stays, unless --purge is given."""
    query = {"purge": "true"} if is_purged else {}
    if is_dry_run:
        query["dry_run"] = "true"
    with connection.open() as client:
        answer = client.delete_path(build_package_path(package_id), query, terms=on.terms)
    command = ["uninstall", package_id, *(["--purge"] if is_purged else [])]
    shown = render_records(answer["plan"], command) if is_dry_run else render_uninstalled(answer)
    connection.output.show(answer, shown)
