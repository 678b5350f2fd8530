"""Where commands print: tables for people, JSON for programs. Colour only on a terminal.

Markup is off throughout, so no text of a server can style, link or restyle anything.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from toolgate.cli.escape import encode_json, escape_line
from toolgate.cli.failure import CommandFailed, Exit

Json = Mapping[str, Any]


def open_console(*, to_stderr: bool = False) -> Console:
    """A console that prints what it is given and reads nothing into it."""
    return Console(stderr=to_stderr, markup=False, emoji=False, highlight=False)


def print_json(value: Json | Iterable[Json]) -> None:
    """One object, or one object a line."""
    values = [value] if isinstance(value, Mapping) else value
    console = open_console()
    for one in values:
        # Straight to the file: a console would wrap the line. At once: `up` prints one and goes on for days.
        console.file.write(encode_json(one) + "\n")
        console.file.flush()


def write_json(path: Path, value: Json) -> None:
    """One object into a file, for people to read and change."""
    try:
        path.write_text(encode_json(value, indent=2) + "\n", "utf-8")
    except OSError as exc:
        raise CommandFailed(
            f"cannot write `{path}`: {exc.strerror}",
            hint="name a file in a directory that you may write to",
            exit_code=Exit.USAGE,
        ) from exc


def print_failure(failure: CommandFailed, *, as_json: bool) -> None:
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


class Output:
    """The choice between the two, made once per command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, value: Json | Iterable[Json], rendered: RenderableType) -> None:
        """Print `value` to a program or `rendered` to a person."""
        if self.as_json:
            print_json(value)
        else:
            # Not cropped: what is meant to be copied stays whole, wider than the terminal or not.
            open_console().print(rendered, crop=False)

    def tell(self, value: Json, line: RenderableType) -> None:
        """Print one of many, as it comes: a line, however long, for whoever reads lines."""
        if self.as_json:
            print_json(value)
        else:
            open_console().print(line, soft_wrap=True)
