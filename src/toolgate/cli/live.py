"""A run as it goes on: what its guest logs to standard error, what it writes to standard output.

A terminal shows what a guest writes line by line, made harmless; a file or a pipe gets it when the run has
ended, byte for byte.
"""

import base64
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate.cli.client.rest import RestClient, failure_of, invocations_path
from toolgate.cli.failure import CommandFailed
from toolgate.cli.output import Output, open_console
from toolgate.cli.render.invocations import render_line

Answer = Mapping[str, Any]

_SILENCE_S: Final = 60.0


class Screen:
    """Where a run is shown as it goes on. `shows_output` False: its output is shown in another way."""

    def __init__(self, *, shows_output: bool) -> None:
        self._shows_output = shows_output
        self._is_terminal = sys.stdout.isatty()
        self._errors = open_console(to_stderr=True)

    def line(self, line: Answer) -> None:
        """One line, as it comes."""
        if line["stream"] != "stdout":
            self._errors.print(render_line(line), soft_wrap=True)
        elif self._shows_output and self._is_terminal:
            print_line(line)

    def end(self, ending: Answer) -> None:
        """What is not shown line by line."""
        if self._shows_output and not self._is_terminal:
            sys.stdout.buffer.write(output_of(ending, "stdout"))
            sys.stdout.flush()


def print_line(line: Answer, *, as_json: bool = False) -> None:
    """One line of a log, on standard output."""
    Output(as_json=as_json).tell(line, render_line(line))


def output_of(ending: Answer, stream: str) -> bytes:
    """The whole of one stream."""
    text = ending[stream]
    return base64.b64decode(ending[f"{stream}_base64"]) if text is None else str(text).encode()


def follow(
    client: RestClient, invocation: Answer, show: Callable[[Answer], None], *, within_s: float | None = None
) -> Answer:
    """The invocation once it has ended; `show` gets its lines as they come.

    Raises CommandFailed, of code `timeout` where it takes longer.
    """
    path = invocations_path(invocation["task_id"], invocation["invocation_id"], "events")
    until_s = None if within_s is None else time.monotonic() + within_s
    silence_s = _SILENCE_S if within_s is None else min(_SILENCE_S, within_s)
    for event in client.events(path, {}, silence_s=silence_s):
        if event.name == "line":
            show(event.data)
        elif event.name == "end":
            ended: Answer = event.data
            return ended
        elif event.name == "error":
            raise failure_of(event.data)
        if until_s is not None and time.monotonic() >= until_s:
            raise CommandFailed("the run takes longer than was to be waited for", code="timeout")
    raise CommandFailed(
        "the gateway ended the stream, and the run goes on",
        hint=f"`toolgate invocations show {invocation['task_id']} {invocation['invocation_id']}` says how",
        code="stream_ended",
    )
