"""`toolgate tasks` and `toolgate modules`: policy by kind of work, and the programs that tasks run."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from toolgate.cli.command import add_group, command
from toolgate.cli.files import MODULES, find_module, load_module, send_module
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import RecordGroup, RecordViews
from toolgate.cli.render import layout as ui
from toolgate.cli.render import records as render
from toolgate.cli.rest import build_path

HashArgument = Annotated[
    str, "SHA256", "Hash of the module or its first characters, as in `toolgate modules list`."
]

app = typer.Typer(add_completion=False)

tasks = RecordGroup(
    app,
    "task",
    RecordViews(many=render.render_tasks, one=render.render_task),
    summaries={
        "list": "List the tasks with their servers.",
        "get": "Show one task with its config and its workload.",
        "apply": (
            "Create or replace tasks from files.\n\n"
            'Values in `config` are plain values (`true`, `["git"]`) or JSON text. A module file named in '
            "`[workload]`, relative to the task's file, is uploaded first."
        ),
        "delete": "Delete a task. Its URL then shows no tools.",
    },
)

modules = add_group(app, "modules")


@command(modules, "list")
def list_modules(connection: GatewayConnection) -> None:
    """List the modules, newest first, with the tasks that run them."""
    connection.print_result(MODULES, render.render_modules, member="modules")


@command(modules, "get")
def show_module(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Show one module: its size, its age and the tasks that run it."""
    with connection.open() as client:
        module = client.get(build_path(MODULES, find_module(client, sha256)))
    connection.show(module, render.render_module(module))


@command(modules, "upload")
def upload_module(
    file: Annotated[Path, Argument(help="The `.wasm` file to upload.")],
    connection: GatewayConnection,
) -> None:
    """Upload a module. The gateway compiles it once, and rejects unknown host functions.

    `toolgate tasks apply` uploads the module of a task whose `[workload]` names a file.
    """
    module = load_module(file)
    with connection.open() as client:
        response = send_module(client, module, as_json=connection.as_json)
    connection.show(response, render.render_uploaded(response))


@command(modules, "delete")
def delete_module(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Delete a module that no task runs."""
    with connection.open() as client:
        response = client.send("DELETE", build_path(MODULES, find_module(client, sha256)))
    connection.show(response, ui.done("deleted module ", ui.bold(response["sha256"])))
