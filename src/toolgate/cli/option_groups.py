"""Groups of options as one parameter of a command.

A command asks for `gateway: GatewayConnection`; `spread_options` turns that one parameter into the options
`--url`, `--key-file` and `--json` for the parser, and back into one value for the command.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Any, get_type_hints

import typer

Command = Callable[..., None]


def command(app: typer.Typer, name: str, summary: str | None = None) -> Callable[[Command], Command]:
    """Make a function the command `name`, with its groups spread. Its docstring is its help."""

    def register(function: Command) -> Command:
        app.command(name, help=summary)(spread_options(function))
        return function

    return register


def group_command(app: typer.Typer) -> Callable[[Command], Command]:
    """Make a function what a group of commands does when none of them is given."""

    def register(function: Command) -> Command:
        app.callback(invoke_without_command=True)(spread_options(function))
        return function

    return register


def spread_options(function: Command) -> Command:
    """`function`, with each parameter that is a dataclass of options spread into those options.

    Its docstring is its help: paragraphs flow to the width of the terminal, except after a `\\b`.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in signature(function).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _list_parameters(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def spread(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        function(**values)

    spread.__doc__ = "\n\n".join(map(_unwrap_paragraph, cleandoc(function.__doc__ or "").split("\n\n")))
    spread.__annotations__ = {one.name: one.annotation for one in parameters}
    # `inspect.signature` looks for this first; functions have no such attribute until one is set.
    vars(spread)["__signature__"] = Signature(parameters)
    return spread


def _unwrap_paragraph(paragraph: str) -> str:
    return paragraph if paragraph.startswith("\b") else paragraph.replace("\n", " ")


def _list_parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(group)
    ]


def add_group(app: typer.Typer, name: str, summary: str, *, is_command: bool = False) -> typer.Typer:
    """A group of commands under `name`. `is_command`: the group does something by itself, too."""
    group = typer.Typer(add_completion=False, no_args_is_help=not is_command, help=summary)
    app.add_typer(group, name=name)
    return group


def drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are set. An empty value is one."""
    return {name: value for name, value in values.items() if value is not None}
