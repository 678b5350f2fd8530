"""A run as it goes on: what its guest logs to standard error, what it writes to standard output.

A terminal shows what a guest writes line by line, made harmless; a file or a pipe gets it when the run has
ended, byte for byte.
"""

import base64
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate.cli.client.rest import RestClient, build_invocation_path, parse_error
from toolgate.cli.failure import CommandError
from toolgate.cli.output import CommandOutput, open_console
from toolgate.cli.render.invocations import render_line

JsonObject = Mapping[str, Any]

_SILENCE_S: Final = 60.0


class RunScreen:
    """Where a run is shown as it goes on. `shows_output` False: its output is shown in another way."""

    def __init__(self, *, shows_output: bool) -> None:
        self._shows_output = shows_output
        self._is_terminal = sys.stdout.isatty()
        self._errors = open_console(to_stderr=True)

    def line(self, line: JsonObject) -> None:
        """One line, as it comes."""
        if line["stream"] != "stdout":
            self._errors.print(render_line(line), soft_wrap=True)
        elif self._shows_output and self._is_terminal:
            print_line(line)

    def end(self, ending: JsonObject) -> None:
        """What is not shown line by line."""
        if self._shows_output and not self._is_terminal:
            sys.stdout.buffer.write(decode_output(ending, "stdout"))
            sys.stdout.flush()


def print_line(line: JsonObject, *, as_json: bool = False) -> None:
    """One line of a log, on standard output."""
    CommandOutput(as_json=as_json).tell(line, render_line(line))


def decode_output(ending: JsonObject, stream: str) -> bytes:
    """The whole of one stream."""
    text = ending[stream]
    return base64.b64decode(ending[f"{stream}_base64"]) if text is None else str(text).encode()


def follow_run(
    client: RestClient,
    invocation: JsonObject,
    show: Callable[[JsonObject], None],
    *,
    within_s: float | None = None,
) -> JsonObject:
    """The invocation once it has ended; `show` gets its lines as they come.

    Raises CommandFailed, of code `timeout` where it takes longer.
    """
    path = build_invocation_path(invocation["task_id"], invocation["invocation_id"], "events")
    until_s = None if within_s is None else time.monotonic() + within_s
    silence_s = _SILENCE_S if within_s is None else min(_SILENCE_S, within_s)
    for event in client.events(path, {}, silence_s=silence_s):
        if event.name == "line":
            show(event.data)
        elif event.name == "end":
            ended: JsonObject = event.data
            return ended
        elif event.name == "error":
            raise parse_error(event.data)
        if until_s is not None and time.monotonic() >= until_s:
            raise CommandError("the run takes longer than was to be waited for", code="timeout")
    raise CommandError(
        "the gateway ended the stream, and the run goes on",
        hint=f"`toolgate invocations show {invocation['task_id']} {invocation['invocation_id']}` says how",
        code="stream_ended",
    )
