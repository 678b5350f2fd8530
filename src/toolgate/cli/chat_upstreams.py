"""`toolgate chat-upstreams`: the servers of models that the chat door asks."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import build_record_path
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.records import load_record
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
from toolgate.cli.render.chat_upstreams import (
    render_chat_trial,
    render_chat_upstream,
    render_chat_upstreams,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Chat upstreams: the OpenAI-compatible endpoints whose models the chat door asks.",
)


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List the chat upstreams with the models they are asked for."""
    with connection.open() as client:
        upstreams = client.records("chat_upstream")
    connection.output.show(upstreams, render_chat_upstreams(upstreams))


@app.command("show")
@spread_options
def show_command(upstream_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one chat upstream in full. Secrets are masked."""
    with connection.open() as client:
        upstream = client.record("chat_upstream", upstream_id)
    connection.output.show(upstream, render_chat_upstream(upstream))


@app.command("apply")
@spread_options
def apply_command(files: FilesOption, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Create or replace chat upstreams from files.

    `toolgate chat-upstreams test -f FILE` asks one for its models beforehand.
    """
    apply_files("chat_upstream", files, connection, on.terms)


@app.command("delete")
@spread_options
def delete_command(upstream_id: IdArgument, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Remove a chat upstream. Its models are asked no more."""
    delete_record("chat_upstream", upstream_id, connection, on.terms)


@app.command("test")
@spread_options
def try_command(
    connection: GatewayConnection,
    upstream_id: Annotated[str | None, Argument(help="Its id.", show_default=False)] = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Try the one in this file instead, before it is saved.")
    ] = None,
) -> None:
    """Ask a chat upstream once for its models; exit code 1 if that fails.

    One in a file must be fit to be saved, and is not. No model is asked anything.
    """
    if (upstream_id is None) == (file is None):
        raise CommandError("give either an id or --file", exit_code=ExitCode.USAGE)
    draft = None if file is None else load_record(file, kind="chat_upstream")
    tried = draft.id if draft else str(upstream_id)
    with connection.open() as client:
        report = client.post(
            f"{build_record_path('chat_upstream', tried)}/test", draft.body if draft else None
        )
    connection.output.show(report, render_chat_trial(tried, report))
    if not report["ok"]:
        raise typer.Exit(ExitCode.FAILED)


add_past_commands(app, "chat_upstream")
