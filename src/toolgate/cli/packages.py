"""`toolgate packages`: what was published, and what of it is installed."""

from typing import Annotated

import typer
from typer import Argument, Context

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.package_sending import PACKAGES, build_package_path
from toolgate.cli.record_commands import IdArgument
from toolgate.cli.render.packages import render_package, render_packages, render_removed_version

app = typer.Typer(add_completion=False, help="Packages: what was published, and what is installed.")

VersionArgument = Annotated[str, Argument(help="Its version.", show_default=False)]


@app.callback(invoke_without_command=True)
@spread_options
def packages_command(context: Context, connection: GatewayConnection) -> None:
    """Packages: what was published, and what is installed."""
    if context.invoked_subcommand is None:
        _list(connection)


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List the packages: which version is installed, and how many were published."""
    _list(connection)


@app.command("show")
@spread_options
def show_command(package_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one package in full: its tools, and every version."""
    with connection.open() as client:
        package = client.get(build_package_path(package_id))
    connection.output.show(package, render_package(package))


@app.command("remove")
@spread_options
def remove_command(package_id: IdArgument, version: VersionArgument, connection: GatewayConnection) -> None:
    """Remove the archive of a version that is not installed."""
    with connection.open() as client:
        answer = client.delete_path(build_package_path(package_id, version))
    connection.output.show(answer, render_removed_version(answer))


def _list(connection: GatewayConnection) -> None:
    with connection.open() as client:
        packages = client.pages(PACKAGES, "packages")
    connection.output.show(packages, render_packages(packages))
