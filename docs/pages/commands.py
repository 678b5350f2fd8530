"""The command line, from the parser that runs it."""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import typer

from pages.markdown import code, page, table, wrap
from toolgate.cli.command import ExitCode
from toolgate.cli.root import app as command_line

# Commands and parameters are `Any` here: typer keeps their types to itself.

_INTRO: Final = """
Every command takes `--help`, and `--json` to print JSON, one object a line. Text from servers is escaped
before it is printed.
"""
_EXITS: Final = {
    ExitCode.OK: "all went well",
    ExitCode.FAILED: (
        "it did not, or something was found (`audit verify`, `diff`, `doctor`, `lint`, `… test`, `reload`)"
    ),
    ExitCode.USAGE: "the command was not understood",
    ExitCode.AUTH: "the gateway wants a key, or another one",
    ExitCode.UNREACHABLE: "no gateway answers",
    ExitCode.INCOMPLETE: "nothing was found wrong, and part of it could not be judged (`lint`)",
}
_KINDS: Final = {Path: "path", int: "number"}
_SHARED: Final = {
    "Gateway": "Commands that speak to a gateway take the gateway options:",
    "Scope": "Commands about what a URL shows take the scope options:",
}


def commands_page() -> str:
    """cli.md"""
    commands = dict(_walk())
    shared = (
        f"{intro}\n\n{_option_table(_in_panel(commands['toolgate tools'], panel))}"
        for panel, intro in _SHARED.items()
    )
    exits = table(("code", "meaning"), ((str(one.value), _EXITS[one]) for one in ExitCode))
    sections = (_section(name, command) for name, command in commands.items())
    return page("Command line", _INTRO, *shared, f"Exit codes:\n\n{exits}", *sections)


def _walk() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of the help."""
    group: Any = typer.main.get_command(command_line)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        subcommands = getattr(command, "commands", {})
        itself = {} if subcommands and not command.invoke_without_command else {"": command}
        for word, one in (itself | subcommands).items():
            yield f"toolgate {name} {word}".strip(), one


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    title = " ".join([name, *(one.name.upper() for one in arguments)])
    own = [one for one in command.params if one.rich_help_panel is None and "--json" not in one.opts]
    panels = [panel.lower() for panel in _SHARED if _in_panel(command, panel)]
    blocks = [f"## {code(title)}", *map(_paragraph, inspect.cleandoc(command.help).split("\n\n"))]
    if panels:
        blocks.append(f"Takes the {' and '.join(panels)} options.")
    if own:
        blocks.append(_option_table(own))
    return "\n\n".join(blocks)


def _paragraph(text: str) -> str:
    """What stands under a `\\b` is shown line by line: examples."""
    lines = text.removeprefix("\b\n")
    return wrap(text) if lines == text else f"```sh\n{lines}\n```"


def _in_panel(command: Any, panel: str) -> list[Any]:
    return [one for one in command.params if one.rich_help_panel == panel]


def _option_table(options: Iterable[Any]) -> str:
    rows = ((code(_spelling(one)), _values(one), _meaning(one)) for one in options)
    return table(("option", "value", "what"), rows)


def _spelling(option: Any) -> str:
    return option.name.upper() if option.param_type_name == "argument" else ", ".join(option.opts)


def _values(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return ""
    annotation = option.type_descriptor.annotation
    choices = [one for one in get_args(annotation) if isinstance(one, str)]
    return option.metavar or ", ".join(map(code, choices)) or _KINDS.get(annotation, "text")


def _meaning(option: Any) -> str:
    default = f" Default: {code(option.default)}." if option.default else ""
    variable = f" Variable: {code(option.envvar)}." if option.envvar else ""
    return f"{option.help}{default}{variable}"
