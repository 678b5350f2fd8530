"""A run as it goes on: what its guest logs to standard error, what it writes to standard output.

On a terminal, what a guest writes is made harmless; into a file or a pipe it goes as it is.
"""

import base64
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from toolgate.cli.client import RestClient, failure_of, invocations_path
from toolgate.cli.escape import escape_block
from toolgate.cli.failure import CommandFailed
from toolgate.cli.output import open_console, print_json
from toolgate.cli.render.invocations import render_line

Answer = Mapping[str, Any]

_SILENCE_S: Final = 60.0


class Screen:
    """Where the lines of one run go. `shows_output` False: its standard output is shown in another way."""

    def __init__(self, *, shows_output: bool) -> None:
        self._shows_output = shows_output
        self._written = b""
        self._errors = open_console(to_stderr=True)

    def line(self, line: Answer) -> None:
        """One line, as it comes."""
        if line["stream"] != "stdout":
            self._errors.print(render_line(line), soft_wrap=True)
        elif self._shows_output:
            # Whether a line has an end of its own is known with the next one, or with the whole.
            self._write(("\n" if self._written else "").encode() + str(line["text"]).encode())

    def rest(self, ending: Answer) -> None:
        """What of the whole output was not shown line by line."""
        whole = output_of(ending, "stdout")
        if self._shows_output and whole.startswith(self._written):
            self._write(whole[len(self._written) :])

    def _write(self, data: bytes) -> None:
        self._written += data
        if sys.stdout.isatty():
            sys.stdout.write(_harmless(data))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()


class JsonLines:
    """As `Screen`, for programs: every line is an object."""

    def line(self, line: Answer) -> None:
        """One line, as it comes."""
        print_json(line)


def _harmless(data: bytes) -> str:
    return "\n".join(map(escape_block, data.decode(errors="replace").split("\n")))


def output_of(ending: Answer, stream: str) -> bytes:
    """The whole of one stream."""
    text = ending[stream]
    return base64.b64decode(ending[f"{stream}_base64"]) if text is None else str(text).encode()


def follow(
    client: RestClient, invocation: Answer, screen: Screen | JsonLines, *, within_s: float | None = None
) -> Answer:
    """The invocation once it has ended. Raises CommandFailed, of code `timeout` where it takes longer."""
    path = invocations_path(invocation["task_id"], invocation["invocation_id"], "events")
    until_s = None if within_s is None else time.monotonic() + within_s
    silence_s = _SILENCE_S if within_s is None else min(_SILENCE_S, within_s)
    for event in client.events(path, {}, silence_s=silence_s):
        if event.name == "line":
            screen.line(event.data)
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
