"""Groups of options as one parameter of a command.

A command asks for `connection: Connection`; `spread_options` turns that one parameter into the options
`--url`, `--key-file` and `--json` for the parser, and back into one value for the command.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Any, get_type_hints


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with each parameter that is a dataclass of options spread into those options.

    Its docstring is its help: paragraphs flow to the width of the terminal, but for those after a `\\b`.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _list_parameters(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def spread(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        command(**values)

    spread.__doc__ = "\n\n".join(map(_unwrap_paragraph, cleandoc(command.__doc__ or "").split("\n\n")))
    spread.__annotations__ = {one.name: one.annotation for one in parameters}
    # What `inspect.signature` looks for first; functions have no such attribute until one is set.
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
