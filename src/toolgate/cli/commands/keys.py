"""`toolgate keys` and `toolgate integrations`: credentials, and the servers that callers switch on."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Option

from toolgate.cli.command import UsageError, add_group, command, drop_unset
from toolgate.cli.options import GatewayConnection, add_list_commands, duration_option, parse_duration
from toolgate.cli.record_commands import RecordGroup, RecordViews, RevisionOption, id_argument
from toolgate.cli.render.layout import DIM, OK, bold, cell, done, grid, stack_parts
from toolgate.cli.render.records import render_key, render_key_budgets, render_keys, render_new_key
from toolgate.cli.rest import COLLECTIONS, build_conditions, build_path, build_record_path
from toolgate.model.principals import IntegrationState, Role

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class CeilingOptions:
    """The most a key may ever reach. A list that is not given does not restrict."""

    tasks: Annotated[str | None, "--tasks TASKS", "Task ids, joined by commas: no others."] = None
    servers: Annotated[str | None, "--servers SERVERS", "Server ids, joined by commas: no others."] = None
    allow: Annotated[str | None, "--allow PATTERNS", "Only tools that match one: `git/*,get_*`."] = None
    deny: Annotated[str | None, "--deny PATTERNS", "No tools that match one: `*delete*`."] = None

    @property
    def body(self) -> dict[str, list[str]]:
        given = drop_unset(asdict(self))
        return {name: [one.strip() for one in text.split(",") if one.strip()] for name, text in given.items()}


@dataclass(frozen=True, kw_only=True)
class QuotaOptions:
    """The rate limit and quotas of a key, at all nodes together."""

    calls_per_minute: Annotated[
        int | None, Option(min=1, help="Rate limit: calls in each minute, at all nodes.")
    ] = None
    calls_per_day: Annotated[int | None, Option(min=1, help="Quota: calls in each day (UTC).")] = None
    tokens_per_day: Annotated[
        int | None, Option(min=1, help="Quota: tokens of results and chats in each day (UTC).")
    ] = None

    @property
    def budgets(self) -> dict[str, int]:
        return drop_unset({one.name: getattr(self, one.name) for one in fields(QuotaOptions)})


@dataclass(frozen=True, kw_only=True)
class UsageOptions(QuotaOptions):
    """How a key is used."""

    default_task: Annotated[str | None, "Task id for requests that name no task."] = None
    integrations: Annotated[
        IntegrationState | None,
        "Initial state of every server, before callers choose for themselves. Default: on.",
    ] = None
    expires_in: Annotated[str | None, duration_option(help="How long the key is valid: `30d`, `12h`.")] = None

    def body(self, now_s: float) -> dict[str, Any]:
        given = {
            "default_task": self.default_task,
            "expires_at_s": int(now_s + parse_duration(self.expires_in)) if self.expires_in else None,
            "budgets": self.budgets or None,
            "integrations": self.integrations,
        }
        return drop_unset(given)


keys = RecordGroup(
    app,
    "key",
    RecordViews(
        many=lambda found: render_keys(found, time.time()), one=lambda one: render_key(one, time.time())
    ),
    summaries={
        "list": "List the keys: roles, reach and expiry. Keys and their hashes are not shown.",
        "get": "Show one key: role, reach, expiry and quotas. The key itself is not shown.",
    },
    without=("apply", "delete", "diff", "rollback"),
    note=(
        "Keys have no `apply`, `diff` and `rollback`: a record in a file would contain a credential. Use "
        "`create`, `set-quota` and `delete`."
    ),
)
KeyArgument = Annotated[str, id_argument("key")]


@command(keys.app, "create")
def create_key(
    key_id: Annotated[str, "KEY", "Id of the new key: the caller's name in audit."],
    ceiling: CeilingOptions,
    usage: UsageOptions,
    connection: GatewayConnection,
    *,
    role: Annotated[Role, "Role of the caller, which decides what it may do."] = "agent",
    out: Annotated[
        Path | None, "--out FILE", "Write the key to this new file, readable by its owner only."
    ] = None,
) -> None:
    """Create a key and show it once, or write it to a file.

    \b
    toolgate keys create ada --tasks review --expires-in 30d
    toolgate keys create ci --calls-per-minute 60 --calls-per-day 5000
    """
    body = {"key_id": key_id, "role": role, "ceiling": ceiling.body, **usage.body(time.time())}
    with _key_file(out) as write, connection.open() as client:
        key = client.post(COLLECTIONS["key"], body)
        write(key["secret"])
    shown = key if out is None else {name: value for name, value in key.items() if name != "secret"}
    connection.show(shown, render_new_key(key, out))


@command(keys.app, "set-quota")
def set_key_quota(
    key_id: KeyArgument,
    budgets: QuotaOptions,
    connection: GatewayConnection,
    *,
    has_none: Annotated[bool, "--none", "Remove the rate limit and all quotas."] = False,
) -> None:
    """Replace the rate limit and the quotas of a key.

    Limits that are not given are removed.

    \b
    toolgate keys set-quota ci --calls-per-minute 120 --calls-per-day 10000
    toolgate quotas
    """
    if has_none == bool(budgets.budgets):
        hint = "`toolgate quotas` shows the current ones"
        raise UsageError(f"give either quotas for `{key_id}` or --none", hint=hint)
    path = build_record_path("key", key_id, "budgets")
    connection.send("PUT", path, render_key_budgets, budgets.budgets)


@command(keys.app, "delete")
def delete_key(key_id: KeyArgument, connection: GatewayConnection, revision: RevisionOption = None) -> None:
    """Revoke a key. It is rejected from the next request on, in open sessions too."""
    keys.delete(key_id, connection, build_conditions(revision=revision))


@contextmanager
def _key_file(path: Path | None) -> Iterator[Callable[[str], object]]:
    """A writer of the key. The file is created before the key, so that no key is created and lost."""
    if path is None:
        yield lambda _: None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as exc:
        hint = "give a file that does not exist"
        raise UsageError(f"cannot create the file `{path}`: {exc.strerror}", hint=hint) from exc
    try:
        with os.fdopen(descriptor, "w") as file:
            yield lambda key: file.write(f"{key}\n")
    except BaseException:
        path.unlink()
        raise


_PATH: Final = "/api/v1/me/integrations"
_WORDS: Final = {"on": "on", "read_only": "read-only", "off": "off"}
_STYLES: Final = {"on": OK, "read_only": OK, "off": DIM}

ServerArgument = Annotated[str, "SERVER", "Server id, as in `toolgate integrations list`."]


def _render_integrations(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not found:
        return Text("your key reaches no server: ask an admin")
    table = grid("SERVER", "STATE", "BY", ">READ-ONLY", ">WRITING", "NAME*")
    for one in found:
        state = cell(_WORDS.get(one["state"], one["state"]), _STYLES.get(one["state"], ""))
        by = cell("you" if one["chosen"] else "default", DIM)
        tools = (one["read_only_tools"], one["writing_tools"])
        table.add_row(bold(one["server_id"]), state, by, *tools, one["display_name"])
    note = "The counts include tools of servers that are switched off."
    return stack_parts(table, Text(note, style=DIM))


integrations = add_group(app, "integrations", is_command=True)
add_list_commands(
    integrations,
    "List the servers that your key reaches, and which you switched on.",
    _PATH,
    "integrations",
    _render_integrations,
)


@command(integrations, "on")
def switch_on(
    server_id: ServerArgument,
    connection: GatewayConnection,
    *,
    is_all: Annotated[bool, "--all", "All its tools, not only those marked as read-only."] = False,
) -> None:
    """Switch a server on for yourself: its read-only tools, prompts and resources."""
    state = "on" if is_all else "read_only"
    connection.send("PUT", build_path(_PATH, server_id), _render_switched, {"state": state})


@command(integrations, "off")
def switch_off(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """Switch a server off for yourself: its tools, prompts and resources."""
    connection.send("PUT", build_path(_PATH, server_id), _render_switched, {"state": "off"})


@command(integrations, "reset")
def reset(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """Undo your choice for a server: it gets the default state of your key."""
    shown = done(bold(server_id), " has the default state of your key")
    connection.send("DELETE", build_path(_PATH, server_id), lambda _: shown)


def _render_switched(one: Mapping[str, Any]) -> RenderableType:
    reading, writing = one["read_only_tools"], one["writing_tools"]
    had = {
        "on": f" is on: all {reading + writing} tools",
        "read_only": f" is on for its {reading} read-only tools; {writing} others need --all",
        "off": " is off",
    }
    return done(bold(one["server_id"]), had[one["state"]])
