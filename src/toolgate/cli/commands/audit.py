"""`toolgate audit`: events as a list, a stream or a file, and the verification of the log."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Context, Option

from toolgate.audit.events import Outcome
from toolgate.audit.index.tables import EventType
from toolgate.cli.command import (
    CommandError,
    ExitCode,
    UsageError,
    add_group,
    command,
    drop_unset,
    print_output,
)
from toolgate.cli.options import SINCE, GatewayConnection, parse_time
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import BAD, DIM, OK, WARN, JsonObject
from toolgate.cli.rest import Query, RestClient, parse_error
from toolgate.lazy_modules import load_lazily

MAX_ARGUMENTS: Final = 160
"""Characters of the arguments in a line, so that it stays readable. `--json` prints all."""
MAX_WHO: Final = 24
"""Columns for the principal: longer names wrap."""

_STYLES = {"ok": OK, "denied": WARN, "tool_error": BAD, "error": BAD, "cancelled": DIM, "unknown": BAD}


def render_events(events: Sequence[JsonObject]) -> RenderableType:
    """One row per event: time, type, outcome, principal and details."""
    if not events:
        return Text("no events match")
    table = ui.grid("TIME (UTC)", "TYPE", "OUTCOME", "PRINCIPAL", "DETAILS*", rows=map(_render_cells, events))
    who = table.columns[3]
    who.no_wrap, who.overflow, who.max_width = False, "fold", MAX_WHO
    return table


def _render_cells(event: JsonObject) -> list[Text]:
    outcome = event["outcome"] or event["mode"] or event["state"] or event["operation"] or event["code"]
    if event["type"] == "spawn":
        outcome = event["reason"]
    elif event["type"] == "session":
        outcome = event["ended_by"]
    return [
        ui.cell(ui.render_time(event["at_ms"]), DIM),
        ui.cell(event["type"]),
        ui.cell(outcome, _STYLES.get(outcome or "", "")),
        ui.cell(event["principal"] or event["peer"]),
        ui.cell(" ".join(_describe_subject(event))),
    ]


def _describe_subject(event: JsonObject) -> list[str]:
    """The details of an event, by its type."""
    tool = ".".join(filter(None, (event["server_id"], event["tool"])))
    parts = [event["kind"], event["record_id"], tool, event["invocation_id"], event["approval_id"]]
    parts.append(event["command"])
    if event["type"] == "scope":
        offered = f"{ui.count_of(event['tools'], 'tool')} of {ui.count_of(event['servers'], 'server')}"
        reasons = _join_counts(event["reasons"])
        parts.append(f"{offered}, {event['excluded']} excluded: {reasons}" if reasons else offered)
    elif event["type"] == "session":
        used = f"{event['door']} {event['session'] or event['request_id']}:"
        totals = f"{ui.count_of(event['tool_calls'], 'call')}, {ui.count_of(event['rounds'], 'round')}"
        hits = _join_counts(event["limits"])
        parts.append(f"{used} {totals}, limits hit: {hits}" if hits else f"{used} {totals}")
    if event["duration_us"]:
        parts.append(f"{event['duration_us'] / 1000:.1f} ms")
    by = event["rule"] or event["decided_by"]
    parts += [event["code"] if event["outcome"] else None, by and f"by {by}"]
    parts += [event["shadow"] and f"would be denied by {event['shadow']}"]
    parts += [event["task_id"] and f"task {event['task_id']}", event["node"] and f"on {event['node']}"]
    parts += [event["reason"] if event["type"] == "approval" else None]
    if event["arguments"]:
        text = ui.encode_json(event["arguments"])
        parts.append(text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}…")
    return [str(part) for part in parts if part]


def _join_counts(counts: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name} {many}" for name, many in (counts or {}).items())


app = typer.Typer(add_completion=False)
audit_app = add_group(app, "audit", is_command=True)
_PATH: Final = "/admin/api/audit"
PAGE: Final = 100  # the gateway's own default: some screens
_FILES_HELP: Final = "Copies of the files of a log. Default: the log in the data directory."


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Which events are listed."""

    type: Annotated[EventType | None, "--type TYPE", "Only events of this type."] = None
    outcome: Annotated[Outcome | None, "--outcome OUTCOME", "Only calls with this outcome."] = None
    door: Annotated[
        str | None, "--door ENDPOINT", "Only calls by `mcp`, `chat`, `responses`, `hostcall` or `rest`."
    ] = None
    principal: Annotated[str | None, "Only events of this principal: `key:ada`, `local`."] = None
    task: Annotated[str | None, "Only events of the task with this id."] = None
    server: Annotated[str | None, "Only events of the server with this id."] = None
    tool: Annotated[str | None, "Only calls of this tool, by its name on the server."] = None
    code: Annotated[str | None, "Only events with this error code: `unknown_tool`."] = None
    session: Annotated[str | None, "Only events of the session or run with this id."] = None
    request: Annotated[str | None, "Only events of the request with this id."] = None
    node: Annotated[str | None, "Only events of the node with this id. Empty: of the control plane."] = None
    profile: Annotated[str | None, "Only calls decided by this profile version: `desk@2`."] = None
    since: Annotated[str | None, SINCE] = None
    until: Annotated[str | None, "--until TIME", "Only events before this time: `2h`, or a day."] = None

    @property
    def query(self) -> dict[str, str | int | None]:
        times = drop_unset({"since": self.since, "until": self.until})
        return {**asdict(self), **{name: parse_time(one) for name, one in times.items()}}


@command(audit_app, None)
def audit_command(
    context: Context,
    connection: GatewayConnection,
    which: AuditFilter,
    *,
    limit: Annotated[
        int | None, Option(min=1, max=1000, help="Number of events, at most 1000. Default: 100.")
    ] = None,
    is_followed: Annotated[bool, "--follow -f", "Print new events as they happen, until Ctrl-C."] = False,
    export: Annotated[
        Literal["csv", "jsonl"] | None, "Print up to 100,000 events in this file format."
    ] = None,
) -> None:
    """List calls, denials, changes and other events.

    \b
    toolgate audit --outcome denied --since 12h
    toolgate audit --follow --server github
    """
    if context.invoked_subcommand is not None:
        return
    given = {"--since": which.since, "--until": which.until, "--limit": limit, "--export": export}
    mode, without = (
        ("--follow", set(given)) if is_followed else ("--export", {"--limit"} if export else set())
    )
    wrong = [name for name, value in given.items() if name in without and value is not None]
    if wrong:
        hint = "--follow prints new events, --export all past ones"
        raise UsageError(f"{mode} cannot be combined with {' and '.join(wrong)}", hint=hint)
    with suppress(KeyboardInterrupt), connection.open() as client:
        if export is not None:
            for chunk in client.chunks(f"{_PATH}/export", {**which.query, "format": export}):
                sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
        elif is_followed:
            _follow_events(client, which.query, connection)
        else:
            response = client.get(_PATH, {**which.query, "limit": limit or PAGE})
            connection.show(response["events"], ui.render_newest("events", render_events, response))


@command(audit_app, "verify")
def verify_command(
    files: Annotated[list[Path] | None, "FILE", _FILES_HELP] = None,
    *,
    data: Annotated[Path | None, "--data DIR", "Data directory of the gateway. Default: `.toolgate`."] = None,
    seal: Annotated[
        str | None, "--seal SHA256", "Seal that you kept: fail if the log does not contain it."
    ] = None,
    as_json: Annotated[bool, "--json", "Print the result as one JSON object."] = False,
) -> None:
    """Check that the audit log is intact.

    The command compares the log with its seals. It needs no gateway, and works while one writes. Exit code 1
    if lines were changed, removed or reordered.

    \b
    toolgate audit verify
    toolgate audit verify /backup/audit.jsonl*
    """
    if files and data is not None:
        raise UsageError("give either files or --data, not both")
    if seal is not None and not re.fullmatch(r"[0-9a-f]{64}", seal):
        hint = "copy all 64 characters that `toolgate audit verify` printed"
        raise UsageError(f"invalid seal `{seal}`", hint=hint)
    # Loaded only here: the index takes as long to load as all else.
    verifying = load_lazily("toolgate.cli.commands.audit_verify")
    verifier = verifying.verify_copies(files) if files else verifying.verify_log(data)
    if seal is not None:
        verifier.expect_seal(seal)
    print_output(verifying.to_json(verifier), verifying.render_verified(verifier), as_json=as_json)
    if verifier.breaks:
        raise typer.Exit(ExitCode.FAILED)


def _follow_events(client: RestClient, query: Query, connection: GatewayConnection) -> None:
    hint = "run it again when the gateway is reachable"
    for name, data in client.events(f"{_PATH}/events", query):
        if name == "error":
            raise parse_error(data)
        if name == "event":
            line = Text("  ").join(one for one in _render_cells(data) if one)
            connection.show(data, line, is_line=True)
            hint = f"`toolgate audit --since {data['at_ms']}` lists later events"
    raise CommandError("the gateway ended the stream", hint=hint, code="stream_ended")
