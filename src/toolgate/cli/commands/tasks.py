"""`toolgate tasks` and `toolgate modules`: policy by kind of work, and the programs that tasks run."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from toolgate.cli.command import add_group, command
from toolgate.cli.files import MODULES, find_module, load_module, send_module
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import RecordGroup
from toolgate.cli.render import layout as ui
from toolgate.cli.render import records as render
from toolgate.cli.rest import build_path

HashArgument = Annotated[
    str, Argument(metavar="SHA256", help="Its hash, or the beginning of it.", show_default=False)
]

app = typer.Typer(add_completion=False)

tasks = RecordGroup(app, "task")
tasks.add_list("List the tasks with their servers.", render.render_tasks)
tasks.add_show("get", "Show one task with its config and its workload.", render.render_task)
tasks.add_apply(
    "Create or replace tasks from files.\n\n"
    'Values in `config` may be written as they are (`true`, `["git"]`) or as JSON text. A module that '
    "`[workload]` names as a file, from the directory of the task's file, is uploaded before."
)
tasks.add_delete("Remove a task. Its URL then shows no tools.")
tasks.add_past()

modules = add_group(app, "modules")


@command(modules, "list")
def list_modules(connection: GatewayConnection) -> None:
    """List the modules, newest first, with the tasks that run them."""
    connection.print_result(MODULES, render.render_modules, member="modules")


@command(modules, "get")
def show_module(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Show one module: its size, its age, the tasks that run it."""
    with connection.open() as client:
        module = client.get(build_path(MODULES, find_module(client, sha256)))
    connection.output.show(module, render.render_module(module))


@command(modules, "upload")
def upload_module(
    file: Annotated[Path, Argument(help="A `.wasm` file.", show_default=False)], connection: GatewayConnection
) -> None:
    """Upload a module. It is compiled once, and refused if it calls host functions that do not exist.

    `toolgate tasks apply` does this by itself for a task whose `[workload]` names a file.
    """
    module = load_module(file)
    with connection.open() as client:
        response = send_module(client, module, as_json=connection.as_json)
    connection.output.show(response, render.render_uploaded(response))


@command(modules, "delete")
def delete_module(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Remove a module that no task runs."""
    with connection.open() as client:
        response = client.send("DELETE", build_path(MODULES, find_module(client, sha256)))
    connection.output.show(response, ui.done("removed module ", ui.bold(response["sha256"])))
