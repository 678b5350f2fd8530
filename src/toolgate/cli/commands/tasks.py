"""`toolgate tasks`: the named policy holders, and what they run.

`toolgate modules`: the programs of tasks with workloads.
"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from toolgate.cli.files.modules import MODULES, build_module_path, find_module, load_module, send_module
from toolgate.cli.option_groups import add_group, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import (
    ConditionOptions,
    FilesOption,
    IdArgument,
    add_past_commands,
    apply_files,
    delete_record,
)
from toolgate.cli.render.records import (
    render_module,
    render_modules,
    render_removed,
    render_task,
    render_tasks,
    render_uploaded,
)

app = typer.Typer(add_completion=False)
tasks_app = add_group(
    app, "tasks", "Tasks: which servers and tools each kind of work may use, and what it runs."
)


@command(tasks_app, "list")
def list_command(connection: GatewayConnection) -> None:
    """List the tasks with their servers."""
    with connection.open() as client:
        tasks = client.records("task")
    connection.output.show(tasks, render_tasks(tasks))


@command(tasks_app, "get")
def get_command(task_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one task with its config and its workload."""
    with connection.open() as client:
        task = client.record("task", task_id)
    connection.output.show(task, render_task(task))


@command(tasks_app, "apply")
def apply_command(files: FilesOption, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Create or replace tasks from files.

    Values in `config` may be written as they are (`true`, `["git"]`) or as JSON text. A module that
    `[workload]` names as a file, from the directory of the task's own, is uploaded before.
    """
    apply_files("task", files, connection, on.terms)


@command(tasks_app, "delete")
def delete_command(task_id: IdArgument, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Remove a task. Its URL then shows no tools."""
    delete_record("task", task_id, connection, on.terms)


add_past_commands(tasks_app, "task")


modules_app = add_group(app, "modules", "Modules: the WebAssembly programs that tasks run.")

HashArgument = Annotated[
    str, Argument(metavar="SHA256", help="Its hash, or the beginning of it.", show_default=False)
]


@command(modules_app, "list")
def list_modules_command(connection: GatewayConnection) -> None:
    """List the modules, newest first, with the tasks that run them."""
    with connection.open() as client:
        modules = client.get(MODULES)["modules"]
    connection.output.show(modules, render_modules(modules))


@command(modules_app, "show")
def show_module_command(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Show one module: its size, its age, the tasks that run it."""
    with connection.open() as client:
        module = client.get(build_module_path(find_module(client, sha256)))
    connection.output.show(module, render_module(module))


@command(modules_app, "upload")
def upload_module_command(
    file: Annotated[Path, Argument(help="A `.wasm` file.", show_default=False)], connection: GatewayConnection
) -> None:
    """Upload a module. It is compiled once, and refused if it calls what is not there.

    `toolgate tasks apply` does this by itself for a task whose `[workload]` names a file.
    """
    module = load_module(file)
    with connection.open() as client:
        answer = send_module(client, module, as_json=connection.as_json)
    connection.output.show(answer, render_uploaded(answer))


@command(modules_app, "delete")
def delete_module_command(sha256: HashArgument, connection: GatewayConnection) -> None:
    """Remove a module that no task runs."""
    with connection.open() as client:
        answer = client.delete_path(build_module_path(find_module(client, sha256)))
    connection.output.show(answer, render_removed(answer))
