"""`toolgate integrations`: which servers a caller has switched on for itself, with the caller's own key."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Context, Option

from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.layout import DIM, OK, cell, grid, sentence, stack_parts

app = typer.Typer(
    add_completion=False,
    help="Integrations: the servers you switch on and off for yourself, within your key.",
)

_PATH: Final = "/api/v1/me/integrations"
_WORDS: Final = {"on": "on", "read_only": "read-only", "off": "off"}
_STYLES: Final = {"on": OK, "read_only": OK, "off": DIM}

ServerArgument = Annotated[
    str,
    Argument(metavar="SERVER", help="The server, as `toolgate integrations` shows it.", show_default=False),
]


@app.callback(invoke_without_command=True)
@spread_options
def integrations_command(context: Context, connection: GatewayConnection) -> None:
    """Integrations: the servers you switch on and off for yourself, within your key.

    \b
    toolgate integrations
    toolgate integrations on files
    toolgate integrations on files --all
    """
    if context.invoked_subcommand is None:
        _list(connection)


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List every server that your key reaches, and how much of it you have switched on."""
    _list(connection)


@app.command("on")
@spread_options
def on_command(
    server_id: ServerArgument,
    connection: GatewayConnection,
    *,
    is_all: Annotated[
        bool, Option("--all", help="All its tools, not only those marked as read-only.")
    ] = False,
) -> None:
    """Switch a server on for yourself: read-only tools, prompts and resources; with --all, all its tools."""
    _switch(connection, server_id, "on" if is_all else "read_only")


@app.command("off")
@spread_options
def off_command(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """Switch a server off for yourself: its tools, prompts and resources."""
    _switch(connection, server_id, "off")


@app.command("reset")
@spread_options
def reset_command(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """Have of a server what your key gives before you choose."""
    with connection.open() as client:
        answer = client.delete_path(_path(server_id))
    done = sentence(Text("✓ ", style=OK), cell(server_id, "bold"), " is as your key has it by default")
    connection.output.show(answer, done)


def _list(connection: GatewayConnection) -> None:
    with connection.open() as client:
        found = client.pages(_PATH, "integrations")
    connection.output.show(found, _render_integrations(found))


def _switch(connection: GatewayConnection, server_id: str, state: str) -> None:
    with connection.open() as client:
        found = client.put_path(_path(server_id), {"state": state})
    connection.output.show(found, _render_switched(found))


def _path(server_id: str) -> str:
    return f"{_PATH}/{quote(server_id, safe='')}"


def _render_integrations(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not found:
        return Text("your key reaches no server: ask an administrator")
    table = grid("SERVER", "STATE", "BY", "READ-ONLY", "WRITING", "NAME", flexible={"NAME"})
    for column in table.columns[3:5]:
        column.justify = "right"
    for one in found:
        table.add_row(
            cell(one["server_id"], "bold"),
            cell(_WORDS.get(one["state"], one["state"]), _STYLES.get(one["state"], "")),
            cell("you" if one["chosen"] else "default", DIM),
            cell(one["read_only_tools"]),
            cell(one["writing_tools"]),
            cell(one["display_name"]),
        )
    return stack_parts(
        table, Text("Tools are counted as your key reaches them, switched on or not.", style=DIM)
    )


def _render_switched(one: Mapping[str, Any]) -> RenderableType:
    reading, writing = one["read_only_tools"], one["writing_tools"]
    had = {
        "on": f" is on: all {reading + writing} tools",
        "read_only": f" is on for its {reading} read-only tools; {writing} others need --all",
        "off": " is off",
    }
    return sentence(Text("✓ ", style=OK), cell(one["server_id"], "bold"), had[one["state"]])
