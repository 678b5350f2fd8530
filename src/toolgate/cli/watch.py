"""`toolgate watch`: the changes of the registry as they are made."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.client.rest import RestClient, parse_error
from toolgate.cli.failure import CommandError
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.changes import render_change

app = typer.Typer(add_completion=False)


@app.command("watch")
@spread_options
def watch_command(
    connection: GatewayConnection,
    *,
    since: Annotated[
        int | None, Option("--since", min=0, help="First the changes after this revision. Default: none.")
    ] = None,
    kinds: Annotated[
        str | None, Option("--kinds", help="Only these: `server,task`. Default: all you may see.")
    ] = None,
) -> None:
    """Print each change of the registry, a line a transaction, until Ctrl-C."""
    given = {"since": since, "kinds": kinds}
    query = {name: str(value) for name, value in given.items() if value is not None}
    with suppress(KeyboardInterrupt), connection.open() as client:
        _follow_changes(client, query, connection.output)


def _follow_changes(client: RestClient, query: Mapping[str, str], output: CommandOutput) -> None:
    last: Any = None
    for event in client.events("/admin/api/watch", query):
        if event.name == "error":
            failure = parse_error(event.data)
            failure.hint = _resume_hint(last) or failure.hint
            raise failure
        last = event.data.get("revision", last)
        if output.as_json or event.name == "change":
            output.tell({"event": event.name, **event.data}, render_change(event.data))
    raise CommandError("the gateway ended the stream", hint=_resume_hint(last), code="stream_ended")


def _resume_hint(last: Any) -> str:
    return "" if last is None else f"go on with `toolgate watch --since {last}`"
