"""`toolgate run` and `invocations`: runs of tasks.

A terminal shows a guest's output line by line, escaped. A file or pipe gets it byte for byte when the run
ends.
"""

import base64
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from toolgate.cli.command import CommandError, UsageError, add_group, command, open_console
from toolgate.cli.options import GatewayConnection, duration_option, parse_duration
from toolgate.cli.record_commands import TaskArgument
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject, render_newest
from toolgate.cli.rest import RestClient, build_invocation_path, parse_error
from toolgate.model.invocations import MAX_INPUT_BYTES

_STATES: Final = {
    "queued": ui.DIM,
    "running": "",
    "succeeded": ui.OK,
    "failed": ui.BAD,
    "cancelled": ui.WARN,
    "crashed": ui.BAD,
}
_LEVELS: Final = {"trace": ui.DIM, "debug": ui.DIM, "info": ui.OK, "warn": ui.WARN, "error": ui.BAD}


def render_invocations(invocations: Sequence[JsonObject]) -> RenderableType:
    if not invocations:
        return Text("no runs: start one with `toolgate run TASK`")
    table = ui.grid("INVOCATION", "STATE", "ENDED BY", ">DURATION", "CREATED")
    for one in invocations:
        ended_by = one["ended_by"] if one["exit_code"] is None else f"exit {one['exit_code']}"
        made = ui.render_time(one["created_ms"], "%m-%d %H:%M")
        table.add_row(
            ui.bold(one["invocation_id"]), _render_state(one), ended_by, _render_duration(one), made
        )
    return table


def render_invocation(one: JsonObject) -> RenderableType:
    """Everything about one run except its log."""
    ending: JsonObject = one["ending"] or {}
    facts = {
        "invocation": ui.bold(one["invocation_id"]),
        "task": one["task_id"],
        "by": one["principal"],
        "state": _render_state(one),
        "created": f"{ui.render_time(one['created_ms'])} UTC",
        "attempt": one["attempt"] if one["attempt"] > 1 else None,
    }
    if ending:
        usage = ending["usage"]
        facts |= {
            "ended by": ending["ended_by"],
            "exit code": ending["exit_code"],
            "message": ending["message"] or None,
            "duration": _render_duration(one),
            "fuel": f"{usage['fuel']:,}",
            "memory": f"{usage['memory_bytes']:,} bytes",
            "calls": f"{usage['tool_calls']:,} to tools, {usage['model_asks']:,} to models",
        }
        if ending["is_truncated"]:
            facts["output"] = ui.cell("truncated: raise `limits.max_output_bytes`", ui.WARN)
    table = ui.unheaded_grid(2, ((label, value) for label, value in facts.items() if value is not None))
    if not ending:
        return table
    calls = ui.grid("CALL", ">MS", "FAILED*")
    for call in ending["calls"]:
        calls.add_row(f"{call['server_id']}.{call['tool']}", call["ms"], ui.cell(call["code"], ui.BAD))
    outputs = (_render_output(stream, ending) for stream in ("stdout", "stderr"))
    return ui.stack_parts(table, calls if ending["calls"] else None, *outputs)


def _render_output(stream: str, ending: JsonObject) -> RenderableType | None:
    text = ending[stream]
    if text is None:
        return ui.sentence(Text(f"{stream}: ", style=ui.DIM), "not text; see `--json`")
    return ui.sentence(Text(f"{stream}\n", style=ui.DIM), ui.escape_block(text)) if text else None


def _render_line(line: JsonObject) -> Text:
    text = ui.escape_block(str(line["text"]))
    if line["stream"] != "log":
        return Text(text)
    level = str(line["level"])
    return ui.sentence(Text(f"{level:5}", style=_LEVELS.get(level, "")), " ", text)


def _render_state(one: JsonObject) -> Text:
    is_ending = one["is_cancel_asked"] and one["state"] == "running"
    return ui.cell("ending" if is_ending else one["state"], _STATES.get(str(one["state"]), ""))


def _render_duration(one: JsonObject) -> str:
    if one["started_ms"] is None or one["ended_ms"] is None:
        return ""
    return f"{max(0, one['ended_ms'] - one['started_ms']) / 1000:.1f} s"


_SILENCE_S: Final = 60.0  # four of the keep-alives that the gateway sends every 15 s


def show_line(line: JsonObject, *, as_json: bool) -> None:
    """Show a line of a run, but no output that is printed as a whole at its end: for a pipe, or as JSON."""
    is_output = line["stream"] == "stdout"
    if not is_output or (sys.stdout.isatty() and not as_json):
        open_console(to_stderr=not is_output).print(_render_line(line), soft_wrap=True)


def follow_run(
    client: RestClient,
    invocation: JsonObject,
    show: Callable[[JsonObject], None],
    *,
    within_s: float | None = None,
) -> JsonObject:
    """The invocation once it has ended. `show` gets its lines as they arrive.

    Raises CommandError with code `timeout` after `within_s`.
    """
    path = build_invocation_path(invocation["task_id"], invocation["invocation_id"], "events")
    until_s = None if within_s is None else time.monotonic() + within_s
    silence_s = _SILENCE_S if within_s is None else min(_SILENCE_S, within_s)
    for name, data in client.events(path, {}, silence_s=silence_s):
        if name == "line":
            show(data)
        elif name == "end":
            ended: JsonObject = data
            return ended
        elif name == "error":
            raise parse_error(data)
        if until_s is not None and time.monotonic() >= until_s:
            raise CommandError(f"the run took longer than {within_s:g} s", code="timeout")
    hint = f"see `toolgate invocations get {invocation['task_id']} {invocation['invocation_id']}`"
    raise CommandError("the gateway ended the stream; the run continues", hint=hint, code="stream_ended")


app = typer.Typer(add_completion=False)

_KEY: Final = re.compile(r"[!-~]{1,200}")
INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The input of a run, and how long to wait for it."""

    text: Annotated[str | None, "--input TEXT", "Standard input of the run."] = None
    input_file: Annotated[
        str | None, "--input-file FILE", "File with the standard input of the run; `-` reads ours."
    ] = None
    is_async: Annotated[bool, "--async", "Start the run and do not wait for its end."] = False
    timeout: Annotated[str | None, duration_option(help="Cancel the run after this time: `30s`, `5m`.")] = (
        None
    )
    idempotency_key: Annotated[str | None, "A key that starts one run only, even if it is repeated."] = None

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request. Raises CommandError."""
        if self.text is not None and self.input_file is not None:
            raise UsageError("give either --input or --input-file, not both")
        if self.idempotency_key is not None and not _KEY.fullmatch(self.idempotency_key):
            hint = "use up to 200 visible ASCII characters, without spaces"
            raise UsageError(f"invalid idempotency key `{self.idempotency_key}`", hint=hint)
        try:
            (self.text or "").encode()
        except UnicodeEncodeError as exc:  # the argument has other bytes
            raise UsageError("--input is not UTF-8", hint="give bytes with --input-file") from exc
        if self.input_file is None:
            return {"mode": "async", "input": self.text or ""}
        return {"mode": "async", "input_base64": base64.b64encode(_read(self.input_file)).decode()}


def _read(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"cannot read `{name}`: {exc.strerror}") from exc


@command(app, "run")
def run_command(
    task_id: TaskArgument,
    options: RunOptions,
    connection: GatewayConnection,
) -> None:
    """Run a task's module and print its output.

    The run's output goes to standard output, its log to standard error, and its exit code is the command's.
    Ctrl-C cancels the run. A run that is ended by a limit, a crash or a timeout is an error with exit code 1.
    """
    timeout_s = None if options.timeout is None else parse_duration(options.timeout)
    with connection.open() as client:
        key = options.idempotency_key
        headers = {} if key is None else {"idempotency-key": key}
        made = client.post(build_invocation_path(task_id), options.body, headers=headers)
        if options.is_async:
            head = ui.sentence(
                ui.bold(made["invocation_id"]), f" is {made['state']}. To see its result, run:"
            )
            again = f"toolgate invocations get {made['task_id']} {made['invocation_id']}"
            connection.show(made, Group(head, ui.copyable(again)))
            return
        cancel_path = build_invocation_path(task_id, made["invocation_id"], "cancel")
        show = partial(show_line, as_json=connection.as_json)
        try:
            ended = follow_run(client, made, show, within_s=timeout_s)
        except KeyboardInterrupt:
            client.post(cancel_path)
            raise typer.Exit(INTERRUPTED) from None
        except CommandError as failure:
            if failure.code == "timeout" and timeout_s is not None:
                client.post(cancel_path)
                failure = CommandError(
                    f"the run took longer than `{options.timeout}` and was cancelled",
                    hint=_point_to_run(made),
                    code="timeout",
                )
            raise failure from None
    ending = ended["ending"]
    if connection.as_json:
        connection.show(ended, "")
    elif not sys.stdout.isatty():
        text = ending["stdout"]
        sys.stdout.buffer.write(base64.b64decode(ending["stdout_base64"]) if text is None else text.encode())
        sys.stdout.flush()
    if ending["ended_by"] != "exit":
        message = f"the run {ended['state']} ({ending['ended_by']}): {ending['message']}"
        raise CommandError(message, hint=_point_to_run(ended), code=str(ending["ended_by"]))
    code = ending["exit_code"]
    if code:
        # Exit codes of processes have 8 bits. A failure must not become 0.
        raise typer.Exit((code & 0xFF) or 1)


def _point_to_run(run: Any) -> str:
    return f"`toolgate invocations get {run['task_id']} {run['invocation_id']}` shows the whole run"


invocations_app = add_group(app, "invocations")

InvocationArgument = Annotated[str, "INVOCATION", "Invocation id, as in `toolgate invocations list`."]


@command(invocations_app, "list")
def list_command(
    task_id: TaskArgument,
    connection: GatewayConnection,
    *,
    limit: Annotated[int, Option(min=1, max=1000, help="Number of runs to list, at most 1000.")] = 50,
) -> None:
    """List the runs of a task, newest first.

    With the role `viewer` or higher you see all runs, otherwise your own.
    """
    shown = partial(render_newest, "invocations", render_invocations)
    connection.print_result(build_invocation_path(task_id), shown, {"limit": limit}, member="invocations")


@command(invocations_app, "get")
def show_command(
    task_id: TaskArgument, invocation_id: InvocationArgument, connection: GatewayConnection
) -> None:
    """Show one run: how it ended, its usage, its calls and its output."""
    connection.print_result(build_invocation_path(task_id, invocation_id), render_invocation)


@command(invocations_app, "logs")
def logs_command(
    task_id: TaskArgument,
    invocation_id: InvocationArgument,
    connection: GatewayConnection,
    *,
    is_followed: Annotated[bool, "--follow -f", "Continue until the run ends."] = False,
) -> None:
    """Print the log and the output of a run."""
    with suppress(KeyboardInterrupt), connection.open() as client:

        def show(line: JsonObject) -> None:
            connection.show(line, _render_line(line), is_line=True)

        if is_followed:
            follow_run(client, client.get(build_invocation_path(task_id, invocation_id)), show)
            return
        path, after = build_invocation_path(task_id, invocation_id, "logs"), 0
        while lines := client.get(path, {"after": after})["lines"]:
            for line in lines:
                show(line)
            after = lines[-1]["seq"]


@command(invocations_app, "cancel")
def cancel_command(
    task_id: TaskArgument, invocation_id: InvocationArgument, connection: GatewayConnection
) -> None:
    """Cancel a queued or running run."""
    connection.send("POST", build_invocation_path(task_id, invocation_id, "cancel"), render_invocation)
