"""`toolgate watch`: the changes of the registry as they are made."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.client.rest import RestClient, failure_of
from toolgate.cli.failure import CommandFailed
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import Connection
from toolgate.cli.output import Output
from toolgate.cli.render.watch import render_event

app = typer.Typer(add_completion=False)


@app.command("watch")
@spread_options
def watch_command(
    connection: Connection,
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
        _follow(client, query, connection.output)


def _follow(client: RestClient, query: Mapping[str, str], output: Output) -> None:
    last: Any = None
    for event in client.events("/admin/api/watch", query):
        if event.name == "error":
            failure = failure_of(event.data)
            failure.hint = _resume_hint(last) or failure.hint
            raise failure
        last = event.data.get("revision", last)
        if output.as_json or event.name == "change":
            output.tell({"event": event.name, **event.data}, render_event(event.data))
    raise CommandFailed("the gateway ended the stream", hint=_resume_hint(last), code="stream_ended")


def _resume_hint(last: Any) -> str:
    return "" if last is None else f"go on with `toolgate watch --since {last}`"
