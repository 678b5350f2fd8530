"""`toolgate run`: a task's workload, run on a node, as if it ran here."""

import base64
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient, build_invocation_path
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.live import RunScreen, follow_run
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.invocations import render_started_run
from toolgate.model.invocations import MAX_INPUT_BYTES

app = typer.Typer(add_completion=False)

_KEY: Final = re.compile(r"[!-~]{1,200}")
INTERRUPTED: Final = 130
"""The exit code of what Ctrl-C has ended."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is begun with, and how it is waited for."""

    text: Annotated[str | None, Option("--input", help="Its standard input.")] = None
    input_file: Annotated[
        str | None, Option("--input-file", metavar="FILE", help="Its standard input, from a file; `-`: ours.")
    ] = None
    is_async: Annotated[bool, Option("--async", help="Do not wait for its end.")] = False
    timeout_s: Annotated[
        float | None, Option("--timeout", min=0.1, help="Cancel it after so many seconds.")
    ] = None
    idempotency_key: Annotated[
        str | None, Option("--idempotency-key", help="Given again, it begins nothing new.")
    ] = None

    @property
    def body(self) -> dict[str, Any]:
        """What is sent. Raises CommandFailed."""
        if self.text is not None and self.input_file is not None:
            raise CommandError("of --input and --input-file, one is enough", exit_code=ExitCode.USAGE)
        if self.idempotency_key is not None and not _KEY.fullmatch(self.idempotency_key):
            raise CommandError(
                "--idempotency-key is up to 200 visible characters of ASCII, without spaces",
                exit_code=ExitCode.USAGE,
            )
        if self.text is not None and not _is_text(self.text):
            raise CommandError(
                "--input is not UTF-8", hint="give bytes with --input-file", exit_code=ExitCode.USAGE
            )
        if self.input_file is None:
            return {"mode": "async", "input": self.text or ""}
        return {"mode": "async", "input_base64": base64.b64encode(_read(self.input_file)).decode()}


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # it came as other bytes
        return False
    return True


def _read(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except OSError as exc:
        raise CommandError(f"cannot read `{name}`: {exc.strerror}", exit_code=ExitCode.USAGE) from exc


@app.command("run")
@spread_options
def run_command(
    task_id: Annotated[str, Argument(metavar="TASK", help="The task to run.")],
    options: RunOptions,
    connection: GatewayConnection,
) -> None:
    """Run a task: its output to standard output, its log to standard error, its exit code as ours.

    Ctrl-C cancels the run. What ends it from outside (fuel, time, a crash) is told, with exit code 1.
    """
    output = connection.output
    with connection.open() as client:
        made = client.invoke(task_id, options.body, idempotency_key=options.idempotency_key)
        if options.is_async:
            output.show(made, render_started_run(made))
            return
        screen = RunScreen(shows_output=not output.as_json)
        try:
            ended = follow_run(client, made, screen.line, within_s=options.timeout_s)
        except KeyboardInterrupt:
            _cancel_run(client, made)
            raise typer.Exit(INTERRUPTED) from None
        except CommandError as failure:
            if failure.code == "timeout" and options.timeout_s is not None:
                _cancel_run(client, made)
                failure = CommandError(
                    f"the run took longer than {options.timeout_s:g} s, and was cancelled",
                    hint=_point_to_run(made),
                    code="timeout",
                )
            raise failure from None
    screen.end(ended["ending"])
    if output.as_json:
        output.show(ended, "")
    _exit_like_guest(ended)


def _cancel_run(client: RestClient, made: Any) -> None:
    client.post(build_invocation_path(made["task_id"], made["invocation_id"], "cancel"))


def _exit_like_guest(ended: Any) -> None:
    """As the guest did; or with what ended it instead. Raises Exit, CommandFailed."""
    ending = ended["ending"]
    if ending["ended_by"] != "exit":
        raise CommandError(
            f"the run {ended['state']} ({ending['ended_by']}): {ending['message']}",
            hint=_point_to_run(ended),
            code=str(ending["ended_by"]),
        )
    code = ending["exit_code"]
    if code:
        # A process has 8 bits for it, and what is not 0 must not become 0.
        raise typer.Exit((code & 0xFF) or 1)


def _point_to_run(run: Any) -> str:
    return f"`toolgate invocations show {run['task_id']} {run['invocation_id']}` shows all of it"
