"""`toolgate pins`: tools offered only as they were approved."""

from collections.abc import Mapping
from typing import Any

import typer

from toolgate.cli.client import UNCONDITIONAL, RestClient, record_path
from toolgate.cli.failure import CommandFailed
from toolgate.cli.options import Connection
from toolgate.cli.record_commands import IdArgument, add_past_commands, delete_record
from toolgate.cli.render.pins import render_pinned, render_pins
from toolgate.cli.spreading import spread_options

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Pins: a pinned server offers its tools only as they were approved.",
)


@app.command("list")
@spread_options
def list_command(connection: Connection) -> None:
    """List the pinned servers with their approved tools."""
    with connection.open() as client:
        pins = client.records("pin")
    connection.output.show(pins, render_pins(pins))


@app.command("set")
@spread_options
def set_command(server_id: IdArgument, connection: Connection) -> None:
    """Approve the tools of a server as they are now.

    From then on a tool whose definition changes, and any new tool, is hidden until you do this again.
    """
    with connection.open() as client:
        before = _pinned_before(client, server_id)
        tools = _definitions(client, server_id)
        answer = client.put("pin", server_id, {"server_id": server_id, "tools": tools})
    connection.output.show(answer, render_pinned(server_id, before, tools, answer))


@app.command("delete")
@spread_options
def delete_command(server_id: IdArgument, connection: Connection) -> None:
    """Take the pin off a server: its tools are offered as they come."""
    delete_record("pin", server_id, connection, UNCONDITIONAL)


add_past_commands(app, "pin")


def _definitions(client: RestClient, server_id: str) -> dict[str, str]:
    """Digests of the tools that may be offered. What only a pin holds back is up for approval too."""
    shown = client.get(f"{record_path('server', server_id)}/tools")["tools"]
    tools = {
        one["tool"]: one["digest"]
        for one in shown
        if one["digest"] is not None and (one["allowed"] or one["reason"] == "quarantined")
    }
    if not tools:
        raise CommandFailed(
            f"server `{server_id}` offers no tool that could be approved",
            hint=f"see why with `toolgate servers tools {server_id}`",
        )
    return tools


def _pinned_before(client: RestClient, server_id: str) -> Mapping[str, Any]:
    pins = {one["server_id"]: one["tools"] for one in client.records("pin")}
    found: Mapping[str, Any] = pins.get(server_id, {})
    return found
