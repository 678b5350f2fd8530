"""`toolgate keys`: who may call, and how far each key reaches."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import COLLECTIONS, UNCONDITIONAL, build_record_path
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import IdArgument, add_history_command, delete_record
from toolgate.cli.render.records import render_key_budgets, render_keys, render_new_key
from toolgate.model.principals import IntegrationState, Role

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
        return {name: _split_list(text) for name, text in given.items() if text is not None}


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What a key may use over time, at all nodes together."""

    calls_per_minute: Annotated[
        int | None, Option("--calls-per-minute", min=1, help="Calls in each minute of the clock, at most.")
    ] = None
    calls_per_day: Annotated[
        int | None, Option("--calls-per-day", min=1, help="Calls in each day (UTC), at most.")
    ] = None
    tokens_per_day: Annotated[
        int | None,
        Option("--tokens-per-day", min=1, help="Tokens of results and chats in each day, at most."),
    ] = None

    @property
    def budgets(self) -> dict[str, int]:
        names = ("calls_per_minute", "calls_per_day", "tokens_per_day")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class UsageOptions(BudgetOptions):
    """How a key is used."""

    default_task: Annotated[
        str | None, Option("--default-task", help="The task of requests that name none.")
    ] = None
    integrations: Annotated[
        IntegrationState | None,
        Option(
            "--integrations",
            help="What callers have of each server before they choose for themselves: on unless given.",
        ),
    ] = None
    expires_in_days: Annotated[int | None, Option("--expires-in-days", min=1, help="Days it is valid.")] = (
        None
    )

    def body(self, now_s: float) -> dict[str, Any]:
        given = {
            "default_task": self.default_task,
            "expires_at_s": int(now_s) + self.expires_in_days * _DAY_S if self.expires_in_days else None,
            "budgets": self.budgets or None,
            "integrations": self.integrations,
        }
        return {name: value for name, value in given.items() if value is not None}


@app.command("list")
@spread_options
def list_command(connection: GatewayConnection) -> None:
    """List the keys: roles, reach and expiry. Neither keys nor their hashes are shown."""
    with connection.open() as client:
        keys = client.records("key")
    connection.output.show(keys, render_keys(keys, time.time()))


@app.command("add")
@spread_options
def add_command(
    key_id: Annotated[str, Argument(help="Name of the caller, as audit shows it.", show_default=False)],
    ceiling: CeilingOptions,
    usage: UsageOptions,
    connection: GatewayConnection,
    *,
    role: Annotated[Role, Option("--role", help="What the key may do.")] = "agent",
    out: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help="Write the key into this new file, for its owner only."),
    ] = None,
) -> None:
    """Make a key and show it, once, or write it into a file.

    \b
    toolgate keys add ada --tasks review --expires-in-days 30
    toolgate keys add ci --calls-per-minute 60 --calls-per-day 5000
    """
    body = {"key_id": key_id, "role": role, "ceiling": ceiling.body, **usage.body(time.time())}
    with _key_file(out) as write, connection.open() as client:
        key = client.post(COLLECTIONS["key"], body)
        write(key["secret"])
    shown = key if out is None else {name: value for name, value in key.items() if name != "secret"}
    connection.output.show(shown, render_new_key(key, out))


@app.command("budgets")
@spread_options
def budgets_command(
    key_id: IdArgument,
    budgets: BudgetOptions,
    connection: GatewayConnection,
    *,
    has_none: Annotated[bool, Option("--none", help="Limit nothing any more.")] = False,
) -> None:
    """Replace what a key may use over time. What is not given is not limited any more.

    \b
    toolgate keys budgets ci --calls-per-minute 120 --calls-per-day 10000
    toolgate budgets
    """
    if has_none == bool(budgets.budgets):
        raise CommandError(
            f"say either what `{key_id}` may use, or --none",
            hint="`toolgate budgets` shows what it may use now",
            exit_code=ExitCode.USAGE,
        )
    with connection.open() as client:
        key = client.put_path(f"{build_record_path('key', key_id)}/budgets", budgets.budgets)
    connection.output.show(key, render_key_budgets(key))


@app.command("revoke")
@spread_options
def revoke_command(key_id: IdArgument, connection: GatewayConnection) -> None:
    """Take a key back. It is refused from now on, also in open sessions."""
    delete_record("key", key_id, connection, UNCONDITIONAL)


add_history_command(app, "key")


@contextmanager
def _key_file(path: Path | None) -> Iterator[Callable[[str], object]]:
    """What writes the key. The file is made before the key is, so that no key is made and lost."""
    if path is None:
        yield lambda _: None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        raise CommandError(
            f"cannot make the file `{path}`: {exc.strerror}",
            hint="name a file that is not there yet",
            exit_code=ExitCode.USAGE,
        ) from exc
    try:
        with os.fdopen(descriptor, "w") as file:
            yield lambda key: file.write(f"{key}\n")
    except BaseException:
        path.unlink()
        raise


def _split_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
