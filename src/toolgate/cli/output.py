"""Where commands print: tables for people, JSON for programs; progress as it happens. Colour only on a
terminal.

Markup is off throughout, so no text of a server can style or link anything.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from toolgate.cli.failure import CommandError, UsageError
from toolgate.cli.render.layout import BAD, DIM, OK, JsonObject, encode_json, escape_line


def open_console(*, to_stderr: bool = False) -> Console:
    """A console that prints what it is given and reads nothing into it."""
    return Console(stderr=to_stderr, markup=False, emoji=False, highlight=False)


def print_json(value: JsonObject | Iterable[JsonObject]) -> None:
    """One object, or one object a line."""
    values = [value] if isinstance(value, Mapping) else value
    console = open_console()
    for one in values:
        # Straight to the file: a console would wrap the line. At once: `up` prints one and goes on for days.
        console.file.write(encode_json(one) + "\n")
        console.file.flush()


def write_json(path: Path, value: JsonObject) -> None:
    """One object into a file, for people to read and change."""
    try:
        path.write_text(encode_json(value, indent=2) + "\n", "utf-8")
    except OSError as exc:
        raise UsageError(
            f"cannot write `{path}`: {exc.strerror}", hint="name a file in a directory that you may write to"
        ) from exc


def print_failure(failure: CommandError, *, as_json: bool) -> None:
    """Why a command failed, on standard error."""
    console = open_console(to_stderr=True)
    if as_json:
        body = {"error": {"code": failure.code, "message": str(failure), "hint": failure.hint}}
        console.file.write(encode_json(body) + "\n")
        return
    console.print("error: ", style="bold red", end="")
    console.print(escape_line(str(failure)), soft_wrap=True)
    if failure.hint:
        console.print("  try: ", style="bold", end="")
        console.print(escape_line(failure.hint), soft_wrap=True)


class CommandOutput:
    """The choice between the two, made once per command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, value: JsonObject | Iterable[JsonObject], rendered: RenderableType) -> None:
        """Print `value` to a program or `rendered` to a person."""
        if self.as_json:
            print_json(value)
        else:
            # Not cropped: what is meant to be copied stays whole, wider than the terminal or not.
            open_console().print(rendered, crop=False)

    def tell(self, value: JsonObject, line: RenderableType) -> None:
        """Print one of many, as it comes: a line, however long, for readers of lines."""
        if self.as_json:
            print_json(value)
        else:
            open_console().print(line, soft_wrap=True)


class StepProgress:
    """Steps with a beginning and an end."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """Something that takes a while. What it yields is told the detail that is being worked on."""
        started = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(Text(title)) as status:
                yield lambda detail: status.update(Text.assemble(title, (f"  {escape_line(detail)}", DIM)))
        else:
            self._console.print(f"{title} ...")
            yield lambda _: None
        self.done(f"{title} ({time.monotonic() - started:.1f} s)")

    def done(self, text: str) -> None:
        self._console.print(Text.assemble(("✓ ", OK), escape_line(text)))

    def failed(self, text: str) -> None:
        self._console.print(Text.assemble(("✗ ", BAD), escape_line(text)))
