"""`toolgate invocations`: the runs of tasks, past and present."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient, build_invocation_path
from toolgate.cli.live import follow_run, print_line
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.invocations import render_invocation, render_invocations
from toolgate.cli.render.layout import render_newest

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Runs of tasks: which there are, how they went, what they logged.",
)

TaskArgument = Annotated[str, Argument(metavar="TASK", help="The task.")]
InvocationArgument = Annotated[str, Argument(metavar="ID", help="The run.")]


@app.command("list")
@spread_options
def list_command(
    task_id: TaskArgument,
    connection: GatewayConnection,
    *,
    limit: Annotated[int, Option("--limit", min=1, max=1000, help="How many at most.")] = 50,
) -> None:
    """List the newest runs of a task: your own, or with the role `viewer` everybody's."""
    with connection.open() as client:
        answer = client.get(build_invocation_path(task_id), {"limit": str(limit)})
    found = answer["invocations"]
    connection.output.show(found, render_newest(render_invocations(found), answer, len(found)))


@app.command("show")
@spread_options
def show_command(
    task_id: TaskArgument, invocation_id: InvocationArgument, connection: GatewayConnection
) -> None:
    """Show one run: how it ended, what it took, the calls it made, its output."""
    with connection.open() as client:
        found = client.get(build_invocation_path(task_id, invocation_id))
    connection.output.show(found, render_invocation(found))


@app.command("logs")
@spread_options
def logs_command(
    task_id: TaskArgument,
    invocation_id: InvocationArgument,
    connection: GatewayConnection,
    *,
    is_followed: Annotated[bool, Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> None:
    """Print what a run has logged and written, and with --follow what is still to come."""
    with suppress(KeyboardInterrupt), connection.open() as client:
        show = partial(print_line, as_json=connection.as_json)
        if is_followed:
            follow_run(client, client.get(build_invocation_path(task_id, invocation_id)), show)
        else:
            _print_all(client, build_invocation_path(task_id, invocation_id, "logs"), show)


def _print_all(client: RestClient, path: str, show: Callable[[Any], None]) -> None:
    after = 0
    while lines := client.get(path, {"after": str(after)})["lines"]:
        for line in lines:
            show(line)
        after = lines[-1]["seq"]


@app.command("cancel")
@spread_options
def cancel_command(
    task_id: TaskArgument, invocation_id: InvocationArgument, connection: GatewayConnection
) -> None:
    """Cancel a run that waits or runs."""
    with connection.open() as client:
        found = client.post(build_invocation_path(task_id, invocation_id, "cancel"))
    connection.output.show(found, render_invocation(found))
