"""`toolgate keys`: who may call, and how far each key reaches."""

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client import COLLECTIONS, UNCONDITIONAL
from toolgate.cli.options import Connection
from toolgate.cli.record_commands import IdArgument, delete_record
from toolgate.cli.render.records import render_keys, render_new_key
from toolgate.cli.spreading import spread_options
from toolgate.model.principals import Role

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Keys: who may call, and how far each key reaches."
)

_DAY_S = 86_400


@dataclass(frozen=True, kw_only=True)
class CeilingOptions:
    """The most a key may ever reach. A list that is not given does not restrict."""

    tasks: Annotated[str | None, Option("--tasks", help="Only these tasks: `a,b`.")] = None
    servers: Annotated[str | None, Option("--servers", help="Only these servers: `a,b`.")] = None
    allow: Annotated[str | None, Option("--allow", help="Only tools that match: `git/*,get_*`.")] = None
    deny: Annotated[str | None, Option("--deny", help="No tool that matches: `*delete*`.")] = None

    @property
    def body(self) -> dict[str, list[str]]:
        given = {"tasks": self.tasks, "servers": self.servers, "allow": self.allow, "deny": self.deny}
        return {name: _items(text) for name, text in given.items() if text is not None}


@app.command("list")
@spread_options
def list_command(connection: Connection) -> None:
    """List the keys: roles, reach and expiry. Neither keys nor their hashes are shown."""
    with connection.open() as client:
        keys = client.records("key")
    connection.output.show(keys, render_keys(keys, time.time()))


@app.command("add")
@spread_options
def add_command(
    key_id: Annotated[str, Argument(help="Name of the caller, as audit shows it.", show_default=False)],
    ceiling: CeilingOptions,
    connection: Connection,
    *,
    role: Annotated[Role, Option("--role", help="What the key may do.")] = "agent",
    default_task: Annotated[
        str | None, Option("--default-task", help="The task of requests that name none.")
    ] = None,
    expires_in_days: Annotated[
        int | None, Option("--expires-in-days", min=1, help="Days it is valid.")
    ] = None,
) -> None:
    """Make a key and show it, once."""
    body: dict[str, Any] = {"key_id": key_id, "role": role, "ceiling": ceiling.body}
    if default_task is not None:
        body["default_task"] = default_task
    if expires_in_days is not None:
        body["expires_at_s"] = int(time.time()) + expires_in_days * _DAY_S
    with connection.open() as client:
        key = client.post(COLLECTIONS["key"], body)
    connection.output.show(key, render_new_key(key))


@app.command("revoke")
@spread_options
def revoke_command(key_id: IdArgument, connection: Connection) -> None:
    """Take a key back. It is refused from now on, also in open sessions."""
    delete_record("key", key_id, connection, UNCONDITIONAL)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
