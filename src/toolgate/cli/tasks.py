"""`toolgate tasks`: the named policy holders, and what they run."""

import typer

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import (
    ConditionOptions,
    FilesOption,
    IdArgument,
    add_past_commands,
    apply_files,
    delete_record,
)
from toolgate.cli.render.records import render_task, render_tasks

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Tasks: which servers and tools each kind of work may use, and what it runs.",
)


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List the tasks with their servers."""
    with connection.open() as client:
        tasks = client.records("task")
    connection.output.show(tasks, render_tasks(tasks))


@app.command("get")
@spread_options
def get_command(task_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one task with its config and its workload."""
    with connection.open() as client:
        task = client.record("task", task_id)
    connection.output.show(task, render_task(task))


@app.command("apply")
@spread_options
def apply_command(files: FilesOption, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Create or replace tasks from files.

    Values in `config` may be written as they are (`true`, `["git"]`) or as JSON text. A module that
    `[workload]` names as a file, from the directory of the task's own, is uploaded before.
    """
    apply_files("task", files, connection, on.terms)


@app.command("delete")
@spread_options
def delete_command(task_id: IdArgument, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Remove a task. Its URL then shows no tools."""
    delete_record("task", task_id, connection, on.terms)


add_past_commands(app, "task")
