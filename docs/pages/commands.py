"""The command line, from the parser that runs it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import typer

from pages.markdown import code, page, table, wrap
from toolgate.cli.command import ExitCode
from toolgate.cli.help import describe_parameter, describe_value, split_help
from toolgate.cli.root import SECTIONS
from toolgate.cli.root import app as command_line

# Commands and parameters are `Any` here: typer keeps their types to itself.

_INTRO: Final = """
Most commands are a noun and a verb: `toolgate servers list`. Every command takes `--help`. Commands that
print data take `--json`, which prints JSON, one object a line. Text from servers is escaped
before it is printed.
"""
_FORMS: Final = (
    "Durations are a number and a unit: `30d`, `12h`, `30m` or `45s`. Options such as `--since` also take a "
    "day: `2026-11-01`. `NO_COLOR` turns colors off, and `COLUMNS` sets the width."
)
_EXITS: Final = {
    ExitCode.OK: "the command succeeded",
    ExitCode.FAILED: (
        "it failed, or it found something (`audit verify`, `diff`, `doctor`, `lint`, `reload`, `… test`)"
    ),
    ExitCode.USAGE: "the command line is invalid, or a file that it names",
    ExitCode.AUTH: "the key is missing, or may not do this",
    ExitCode.UNREACHABLE: "no gateway responds at the address",
    ExitCode.INCOMPLETE: "nothing was found, but a part could not be checked (`lint`)",
}
_SHARED: Final = {
    "Gateway": "Commands that call a gateway take the gateway options:",
    "Scope": "Commands about the scope of a URL take the scope options:",
}


def commands_page() -> str:
    """cli.md"""
    root: Any = typer.main.get_command(command_line)
    tools = root.get_command(None, "tools")
    shared = (f"{intro}\n\n{_option_table(_in_panel(tools, panel))}" for panel, intro in _SHARED.items())
    exits = table(("code", "meaning"), ((str(one.value), _EXITS[one]) for one in ExitCode))
    blocks = [
        block for title, names in SECTIONS.items() for block in (f"## {title}", *_list_blocks(root, names))
    ]
    return page("Command line", _INTRO, wrap(_FORMS), *shared, f"Exit codes:\n\n{exits}", *blocks)


def list_commands(root: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Each command of a section with its full name, in the order of the help."""
    for name in names:
        command = root.get_command(None, name)
        subcommands: Mapping[str, Any] = getattr(command, "commands", {})
        itself = {} if subcommands and not command.invoke_without_command else {"": command}
        for word, one in (itself | {**subcommands}).items():
            yield f"toolgate {name} {word}".strip(), one


def _list_blocks(root: Any, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        command = root.get_command(None, name)
        if getattr(command, "epilog", None):
            yield wrap(command.epilog)
        yield from (_section(full_name, one) for full_name, one in list_commands(root, [name]))


def _section(name: str, command: Any) -> str:
    shown = [one for one in command.params if not one.hidden]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    title = " ".join([name, *map(describe_value, arguments)])
    own = [one for one in shown if one.rich_help_panel is None and "--json" not in one.opts]
    panels = [panel.lower() for panel in _SHARED if _in_panel(command, panel)]
    blocks = [f"### {code(title)}"]
    blocks += (
        f"```sh\n{text}\n```" if is_example else wrap(text) for text, is_example in split_help(command)
    )
    if panels:
        blocks.append(f"Takes the {' and '.join(panels)} options.")
    if own:
        blocks.append(_option_table(own))
    return "\n\n".join(blocks)


def _in_panel(command: Any, panel: str) -> list[Any]:
    return [one for one in command.params if one.rich_help_panel == panel]


def _option_table(options: Iterable[Any]) -> str:
    rows = ((code(_spell(one)), describe_parameter(one)) for one in options)
    # A bare `|` would end a cell of the table.
    return table(
        ("option", "what"), ((name.replace("|", "\\|"), text.replace("|", "\\|")) for name, text in rows)
    )


def _spell(option: Any) -> str:
    """The names of an option with its value, or an argument."""
    names = [] if option.param_type_name == "argument" else [", ".join(option.opts)]
    return " ".join(filter(None, [*names, describe_value(option)]))
