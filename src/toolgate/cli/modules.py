"""`toolgate modules`: the programs of tasks with workloads."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from toolgate.cli.files.modules import MODULES, build_module_path, find_module, load_module, send_module
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.records import render_module, render_modules, render_removed, render_uploaded

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Modules: the WebAssembly programs that tasks run."
)

HashArgument = Annotated[
    str, Argument(metavar="SHA256", help="Its hash, or the beginning of it.", show_default=False)
]


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List the modules, newest first, with the tasks that run them."""
    with connection.open() as client:
        modules = client.get(MODULES)["modules"]
    connection.output.show(modules, render_modules(modules))


@app.command("show")
@spread_options
def show_command(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Show one module: its size, its age, the tasks that run it."""
    with connection.open() as client:
        module = client.get(build_module_path(find_module(client, sha256)))
    connection.output.show(module, render_module(module))


@app.command("upload")
@spread_options
def upload_command(
    file: Annotated[Path, Argument(help="A `.wasm` file.", show_default=False)], connection: GatewayConnection
) -> None:
    """Upload a module. It is compiled once, and refused if it calls what is not there.

    `toolgate tasks apply` does this by itself for a task whose `[workload]` names a file.
    """
    module = load_module(file)
    with connection.open() as client:
        answer = send_module(client, module, as_json=connection.as_json)
    connection.output.show(answer, render_uploaded(answer))


@app.command("delete")
@spread_options
def delete_command(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Remove a module that no task runs."""
    with connection.open() as client:
        answer = client.delete_path(build_module_path(find_module(client, sha256)))
    connection.output.show(answer, render_removed(answer))
