"""`toolgate audit`: events as a list, as a stream, or as a file; and whether the log is intact."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Context, Option

from toolgate.audit.events import Outcome
from toolgate.audit.index.tables import EventType
from toolgate.cli.command import CommandError, CommandOutput, ExitCode, UsageError, command, drop_unset
from toolgate.cli.options import SINCE, GatewayConnection, parse_time
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import BAD, DIM, OK, WARN, JsonObject
from toolgate.cli.rest import Query, RestClient, parse_error
from toolgate.lazy_modules import load_lazily

MAX_ARGUMENTS: Final = 160
"""Characters of them in a line. Programs get all."""
MAX_WHO: Final = 24
"""Columns of a table for who it was: longer names go on below."""

_STYLES = {"ok": OK, "denied": WARN, "tool_error": BAD, "error": BAD, "cancelled": DIM, "unknown": BAD}


def render_events(events: Sequence[JsonObject]) -> RenderableType:
    """When, what came of it, who, and what it was."""
    if not events:
        return Text("nothing of that has happened")
    table = ui.grid("WHEN (UTC)", "TYPE", "OUTCOME", "WHO", "WHAT*", rows=map(_render_cells, events))
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
    """What it was about, in the words that this type of event has."""
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
audit_app = typer.Typer(add_completion=False)
app.add_typer(audit_app, name="audit")
_PATH: Final = "/admin/api/audit"
PAGE: Final = 100  # what the gateway lists by itself: some screens
_FILES_HELP: Final = "Copies of a log's files, in any order. Unless given: the log in the data directory."


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """What the list is narrowed by."""

    type: Annotated[EventType | None, Option(metavar="TYPE", help=f"{', '.join(get_args(EventType))}.")] = (
        None
    )
    outcome: Annotated[
        Outcome | None, Option(metavar="OUTCOME", help=f"Of calls: {', '.join(get_args(Outcome))}.")
    ] = None
    door: Annotated[str | None, "Calls by `mcp`, `chat`, `responses`, `hostcall` or `rest`."] = None
    principal: Annotated[str | None, "Of this caller, as WHO has it: `key:ada`, `local`."] = None
    task: Annotated[str | None, "Of this task."] = None
    server: Annotated[str | None, "Of this server."] = None
    tool: Annotated[str | None, "Of this tool, without its server's name."] = None
    code: Annotated[str | None, "With this error code: `unknown_tool`."] = None
    session: Annotated[str | None, "Of this session or run, by its id."] = None
    request: Annotated[str | None, "Of this request, by its id."] = None
    node: Annotated[str | None, "Of this node. Empty: of the gateway or control itself."] = None
    profile: Annotated[str | None, "Decided by this version of a profile: `desk@2`."] = None
    since: Annotated[str | None, SINCE] = None
    until: Annotated[str | None, Option(metavar="TIME", help="Before this time, in the same forms.")] = None

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
    limit: Annotated[int | None, Option(min=1, max=1000, help="How many at most; 100 unless given.")] = None,
    is_followed: Annotated[bool, "--follow -f", "What happens from now on, until Ctrl-C."] = False,
    export: Annotated[
        Literal["csv", "jsonl"] | None, "All of them, up to 100,000, as a file: to standard output."
    ] = None,
) -> None:
    """Show what happened: calls, denials, changes, refused credentials, runs, approvals, processes.

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
        hint = "--follow shows what happens from now on, and --export all that did"
        raise UsageError(f"{mode} takes no {' and no '.join(wrong)}", hint=hint)
    with suppress(KeyboardInterrupt), connection.open() as client:
        if export is not None:
            for chunk in client.chunks(f"{_PATH}/export", {**which.query, "format": export}):
                sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
        elif is_followed:
            _follow_events(client, which.query, connection.output)
        else:
            response = client.get(_PATH, {**which.query, "limit": limit or PAGE})
            connection.output.show(response["events"], ui.render_newest("events", render_events, response))


@command(audit_app, "verify")
def verify_command(
    files: Annotated[
        list[Path] | None, Argument(metavar="FILE", help=_FILES_HELP, show_default=False)
    ] = None,
    *,
    data: Annotated[
        Path | None, Option(metavar="DIR", help="The gateway's data directory, if not the default.")
    ] = None,
    seal: Annotated[
        str | None, Option(metavar="SHA256", help="A seal that was written down: it must be there.")
    ] = None,
    as_json: Annotated[bool, "--json", "Print one JSON object."] = False,
) -> None:
    """Check the audit log against its seals; exit code 1 if anything was changed, removed or reordered.

    It asks no gateway, and works while one writes.

    \b
    toolgate audit verify
    toolgate audit verify /backup/audit.jsonl*
    """
    if files and data is not None:
        raise UsageError("give either files or --data")
    if seal is not None and not re.fullmatch(r"[0-9a-f]{64}", seal):
        hint = "copy all 64 characters of what `toolgate audit verify` printed"
        raise UsageError(f"`{seal}` is no seal", hint=hint)
    # Only where it is used: the index takes as long to load as all else.
    verifying = load_lazily("toolgate.cli.commands.audit_verify")
    verifier = verifying.verify_copies(files) if files else verifying.verify_log(data)
    if seal is not None:
        verifier.expect_seal(seal)
    CommandOutput(as_json=as_json).show(verifying.to_json(verifier), verifying.render_verified(verifier))
    if verifier.breaks:
        raise typer.Exit(ExitCode.FAILED)


def _follow_events(client: RestClient, query: Query, output: CommandOutput) -> None:
    hint = "start again once it is reachable"
    for name, data in client.events(f"{_PATH}/events", query):
        if name == "error":
            raise parse_error(data)
        if name == "event":
            line = Text("  ").join(one for one in _render_cells(data) if one)
            output.show(data, line, is_line=True)
            hint = f"`toolgate audit --since {data['at_ms']}` lists what came after"
    raise CommandError("the gateway ended the stream", hint=hint, code="stream_ended")
