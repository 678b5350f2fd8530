"""The help of commands as people read it: plain text, as wide as the terminal, names on the left.

It replaces the boxes of the option parser, which leave a third of 80 columns for text. It reads what the
parser knows of a command, and never runs one.
"""

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from toolgate.cli.render.layout import open_console

# Commands, parameters and contexts are `Any` here: typer keeps their types to itself.

_NARROW: Final = 60
"""Columns below which a text is written under its name: next to it would be ten words a line, or fewer."""
_LONGEST_NAME: Final = 26
"""Columns for names, which leaves 50 of 80 for text. Longer names get a line to themselves."""
_LONGEST_CHOICES: Final = 24  # with its option's name next to it, within the columns for names

_KINDS: Final[Mapping[Any, str]] = {Path: "FILE", int: "N", float: "N"}
_LAST_OPTIONS: Final = {"--json": 1, "--help": 2}

Entry = tuple[str, str]
"""A name and its text."""


def describe_value(parameter: Any) -> str:
    """What to write for the value of a parameter: `FILE`, `list|find`. Empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    choices = "|".join(_list_choices(parameter))
    if parameter.param_type_name == "option" and choices and len(choices) <= _LONGEST_CHOICES:
        return choices
    kind = parameter.type_descriptor.annotation
    name = max(parameter.opts, key=len).removeprefix("--").replace("_", "-")
    # The last word says what it is: `--default-task TASK`.
    return _KINDS.get(kind, name.rpartition("-")[2].upper())


def describe_parameter(parameter: Any) -> str:
    """The help of a parameter, with its choices, default and variable."""
    parts = [str(parameter.help or "")]
    choices = _list_choices(parameter)
    if choices and describe_value(parameter) != "|".join(choices):
        parts.append(f"One of {', '.join(choices)}.")
    if parameter.default and parameter.default is not True:
        parts.append(f"Default: {parameter.default}.")
    if parameter.envvar:
        parts.append(f"Variable: {parameter.envvar}.")
    if parameter.required and parameter.param_type_name == "option":
        parts.append("Required.")
    return " ".join(filter(None, parts))


def _list_choices(parameter: Any) -> Sequence[str]:
    return [str(one) for one in parameter.type_descriptor.choices or ()]


def split_help(command: Any) -> Iterator[tuple[str, bool]]:
    """The paragraphs of a command's help; those that are examples are marked, and their lines stay."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        text = paragraph.removeprefix("\b\n")
        yield (text, True) if text != paragraph else (" ".join(text.split()), False)


def summarize(command: Any) -> str:
    """The first sentence of a command's help."""
    text, _ = next(split_help(command))
    first, _, _ = text.partition(". ")
    return f"{first.removesuffix('.')}."


def render_help(command: Any, context: Any, width: int) -> Text:
    """All that `--help` prints."""
    blocks = [_render_usage(" ".join(_list_usage(command, context)), width)]
    for text, is_example in split_help(command):
        blocks.append(Text(textwrap.indent(text, "  ") if is_example else _fill(text, width)))
    if command.epilog:
        blocks.append(Text(_fill(command.epilog, width)))
    blocks += (_render_section(title, entries, width) for title, entries in _list_sections(command, context))
    return Text("\n\n").join(blocks)


def render_overview(summary: str, sections: Mapping[str, Mapping[str, str]], width: int) -> Text:
    """What `toolgate --help` prints: all commands on one screen, a line each, by section."""
    head = [
        _render_usage("toolgate [--version] COMMAND [OPTIONS]", width),
        Text(_fill(summary, width)),
    ]
    tail = _fill("`toolgate COMMAND --help` explains a command and its options.", width)
    if width < _NARROW:
        listed = [_render_section(title, commands.items(), width) for title, commands in sections.items()]
        return Text("\n\n").join([*head, *listed, Text(tail)])
    column = max(map(len, sections)) + 2
    lines: list[Text] = []
    longest = max(len(name) for commands in sections.values() for name in commands)
    for title, commands in sections.items():
        for name, text in commands.items():
            shown = "" if name != next(iter(commands)) else title
            line = Text.assemble((shown.ljust(column), "bold"), name.ljust(longest + 2), text)
            lines.append(line)
    return Text("\n\n").join([*head, Text("\n").join(lines), Text(tail)])


def _render_usage(usage: str, width: int) -> Text:
    return Text.assemble(("Usage:", "bold"), _fill(f"Usage: {usage}", width).removeprefix("Usage:"))


def _list_usage(command: Any, context: Any) -> Iterator[str]:
    yield context.command_path
    is_group = isinstance(command, TyperGroup)
    if not is_group or command.invoke_without_command:
        yield "[OPTIONS]"
    arguments = (one for one in command.params if one.param_type_name == "argument")
    for argument in (one for one in arguments if not one.hidden):
        name = describe_value(argument) + ("" if argument.nargs == 1 else "...")
        yield name if argument.required else f"[{name}]"
    if is_group:
        yield "[COMMAND]" if command.invoke_without_command else "COMMAND"


def _list_sections(command: Any, context: Any) -> Iterator[tuple[str, list[Entry]]]:
    """The titles and entries of what a command takes and contains."""
    parameters = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    if arguments:
        yield "Arguments", [(describe_value(one), describe_parameter(one)) for one in arguments]
    if isinstance(command, TyperGroup):
        subcommands = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        yield "Commands", [(name, summarize(one)) for name, one in subcommands]
    options = [one for one in parameters if one.param_type_name == "option"]
    options.sort(key=lambda one: max(_LAST_OPTIONS.get(name, 0) for name in one.opts))
    panels = dict.fromkeys(one.rich_help_panel for one in options)
    # The command's own options first, whatever was declared first.
    for panel in sorted(panels, key=lambda one: one is not None):
        found = [one for one in options if one.rich_help_panel == panel]
        yield (
            panel or "Options",
            [
                (
                    f"{', '.join(sorted(one.opts, key=len))} {describe_value(one)}".strip(),
                    describe_parameter(one),
                )
                for one in found
            ],
        )


def _render_section(title: str, entries: Iterable[Entry], width: int) -> Text:
    return Text("\n").join([Text(title, style="bold"), *render_entries(list(entries), width)])


def render_entries(entries: Sequence[Entry], width: int) -> Iterator[Text]:
    """Names with their texts next to them; below them where the terminal or the name leaves no room."""
    longest = max((len(name) for name, _ in entries if len(name) <= _LONGEST_NAME), default=0)
    column = longest + 4 if width >= _NARROW else 6
    for name, text in entries:
        lines = textwrap.wrap(text, max(width - column, 10), break_long_words=False, break_on_hyphens=False)
        if len(name) > column - 4 or not lines:
            yield Text(f"  {name}")
        else:
            yield Text(f"  {name}".ljust(column) + lines.pop(0))
        yield from (Text(" " * column + line) for line in lines)


def _fill(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def format_text(rendered: Text) -> str:
    """Text for the terminal that standard output is: with styles, or without where it takes none."""
    console = open_console()
    with console.capture() as capture:
        console.print(rendered, soft_wrap=True)
    return capture.get()


class HelpCommand(TyperCommand):
    """A command whose help is written here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_text(render_help(self, ctx, open_console().width)))


class HelpGroup(TyperGroup):
    """A group of commands whose help is written here, and printed where no command is given."""

    command_class = HelpCommand

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not (args or self.invoke_without_command or ctx.resilient_parsing):
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_text(render_help(self, ctx, open_console().width)))
