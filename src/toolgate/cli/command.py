"""The parts of every command: its options, its output and its errors.

A command asks for `gateway: GatewayConnection`; `spread_options` turns that one parameter into the options
`--url`, `--key-file` and `--json` for the parser, and back into one value for the command. It prints tables
for people and JSON for programs. Markup is off throughout, so no text of a server can style or link
anything.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.text import Text
from typer import Argument, Option

from toolgate.cli.help import HelpCommand, HelpGroup
from toolgate.cli.render.layout import DIM, JsonObject, done, encode_json, escape_line, failed, open_console

__all__ = ["open_console"]

DEFAULT_URL: Final = "http://127.0.0.1:8080"
Command = Callable[..., None]

JsonOption = Annotated[bool, "--json", "Print JSON, one object a line."]
DryRunOption = Annotated[bool, "--dry-run", "Show what would change; change nothing."]


class ExitCode(IntEnum):
    """Exit codes, the same for every command. 2 is also that of the option parser."""

    # 0 to 2 as in other Unix commands; the others are Toolgate's, and documented.
    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    UNREACHABLE = 4
    INCOMPLETE = 5
    """No problem was found, but a part could not be checked."""


class CommandError(Exception):
    """A command cannot continue. `hint` says what to do next; `code` and `data` are the gateway's."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str = "failed",
        exit_code: ExitCode = ExitCode.FAILED,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
        self.exit_code = exit_code
        self.data: Mapping[str, Any] = data or {}


class UsageError(CommandError):
    """The options, or a file that they name, are invalid."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.USAGE)


def add_group(app: typer.Typer, name: str, *, is_command: bool = False, note: str = "") -> typer.Typer:
    """A group of commands under `name`. `is_command`: the group also runs by itself."""
    group = typer.Typer(
        cls=HelpGroup, add_completion=False, invoke_without_command=is_command, epilog=note or None
    )
    app.add_typer(group, name=name)
    return group


def command(app: typer.Typer, name: str | None, summary: str | None = None) -> Callable[[Command], Command]:
    """Register a function as the command `name`, with its groups spread. Its docstring is its help.

    Without a name, it is what a group of commands does when none of them is given.
    """
    add = (
        app.callback(invoke_without_command=True)
        if name is None
        else app.command(name, cls=HelpCommand, help=summary)
    )

    def register(function: Command) -> Command:
        add(spread_options(function))
        return function

    return register


def spread_options(function: Command) -> Command:
    """`function`, with each parameter that is a dataclass of options spread into those options.

    Its docstring is its help: paragraphs flow to the width of the terminal, except after a `\\b`.
    `task: Annotated[str, "Only this task."]` is the option `--task` with that help. Other names, and the word
    for the value, go before it: `"--file -f FILE", "A file."`. A word alone, `"TASK"`, is an argument.
    """
    hints = _read_hints(function)
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in signature(function).parameters.items():
        hint = hints[name]
        if is_dataclass(hint):
            groups[name] = hint
            inner = _read_hints(hint)
            parameters += [
                Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=inner[one.name])
                for one in fields(hint)
            ]
        else:
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def spread(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        function(**values)

    paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
    unwrapped = (one if one.startswith("\b") else one.replace("\n", " ") for one in paragraphs)
    spread.__doc__ = "\n\n".join(unwrapped)
    spread.__annotations__ = {one.name: one.annotation for one in parameters}
    # `inspect.signature` looks for this first; functions have no such attribute until one is set.
    vars(spread)["__signature__"] = Signature(parameters)
    return spread


def _read_hints(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class, those with nothing but text as options and arguments."""
    hints = get_type_hints(owner, include_extras=True)
    for name, hint in hints.items():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if notes and isinstance(notes[0], str):
            *spelling, help_text = notes
            words = " ".join(spelling).split()
            names = [one for one in words if one.startswith("-")]
            metavar = next((one for one in words if not one.startswith("-")), None)
            if words and not names:
                hints[name] = Annotated[kind, Argument(metavar=metavar, help=help_text)]
                continue
            # Named here: the parser would add `--no-task` to a flag without a name.
            names = names or [f"--{name.replace('_', '-')}"]
            hints[name] = Annotated[kind, Option(*names, metavar=metavar, help=help_text)]
    return hints


def drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are set. An empty value is set."""
    return {name: value for name, value in values.items() if value is not None}


def print_failure(failure: CommandError, *, as_json: bool) -> None:
    """Print an error to standard error."""
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


def print_output(
    value: JsonObject | Iterable[JsonObject],
    rendered: RenderableType,
    *,
    as_json: bool,
    is_line: bool = False,
) -> None:
    """Print `value` to a program or `rendered` to a person. `is_line`: do not wrap it."""
    console = open_console()
    if as_json:
        for one in [value] if isinstance(value, Mapping) else value:
            # Straight to the file: a console would wrap the line. Flushed: `up` prints one and runs for days.
            console.file.write(encode_json(one) + "\n")
            console.file.flush()
    elif is_line:
        console.print(rendered, soft_wrap=True)
    else:
        # Not cropped: text to be copied may be wider than the terminal.
        console.print(rendered, crop=False)


class StepProgress:
    """Shows the steps of a command."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """One step. It yields a function that shows a detail of the current work."""
        started = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(Text(title)) as status:
                yield lambda detail: status.update(Text.assemble(title, (f"  {escape_line(detail)}", DIM)))
        else:
            self._console.print(f"{title} ...")
            yield lambda _: None
        self.done(f"{title} ({time.monotonic() - started:.1f} s)")

    def done(self, text: str) -> None:
        self._console.print(done(escape_line(text)))

    def failed(self, text: str) -> None:
        self._console.print(failed(escape_line(text)))
