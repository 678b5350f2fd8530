"""The options that many commands share, each group a dataclass, and how commands take them.

A command asks for `connection: Connection`; `spread_options` turns that one parameter into the options
`--url`, `--key-file` and `--json` for the parser, and back into one value for the command.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from typer import Option

from toolgate.cli.client import RestClient, open_client
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.output import Output

DEFAULT_URL: Final = "http://127.0.0.1:8080"
KEY_VARIABLE: Final = "TOOLGATE_KEY"

_GATEWAY = "Gateway"
_SCOPE = "Scope"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Which gateway a command speaks to, as whom, and how it answers."""

    url: Annotated[
        str, Option("--url", envvar="TOOLGATE_URL", help="Address of the gateway.", rich_help_panel=_GATEWAY)
    ] = DEFAULT_URL
    key_file: Annotated[
        Path | None,
        Option(
            "--key-file",
            help=f"File with the key to use; else the variable {KEY_VARIABLE}; else none (loopback).",
            rich_help_panel=_GATEWAY,
        ),
    ] = None
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False

    @property
    def output(self) -> Output:
        return Output(as_json=self.as_json)

    def open(self) -> AbstractContextManager[RestClient]:
        """A client of the gateway."""
        return open_client(self.url, self.load_key())

    def load_key(self) -> str | None:
        """The key, from the file or the environment; never from the command line, where `ps` shows it."""
        if self.key_file is None:
            return os.environ.get(KEY_VARIABLE, "").strip() or None
        try:
            key = self.key_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandFailed(
                f"cannot read the key file `{self.key_file}`: {exc}",
                hint="give a file that holds one key and that you may read",
                exit_code=Exit.USAGE,
            ) from exc
        if not key:
            raise CommandFailed(
                f"the key file `{self.key_file}` is empty",
                hint="write the key into it, as `toolgate keys add` printed it",
                exit_code=Exit.USAGE,
            )
        return key


@dataclass(frozen=True, kw_only=True)
class ScopeOptions:
    """What a caller may put into the URL of the MCP door."""

    task: Annotated[str | None, Option("--task", help="As this task sees it.", rich_help_panel=_SCOPE)] = None
    servers: Annotated[
        str | None, Option("--servers", help="Only these servers: `a,b`.", rich_help_panel=_SCOPE)
    ] = None
    tools: Annotated[
        str | None,
        Option("--tools", help="Only these tools: `git.git_log,time.*`.", rich_help_panel=_SCOPE),
    ] = None
    profile: Annotated[
        str | None, Option("--profile", help="Narrowed by this profile.", rich_help_panel=_SCOPE)
    ] = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters that were given. An empty value is one: it selects nothing."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with each parameter that is a dataclass of options spread into those options."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _parameters_of(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def spread(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        command(**values)

    spread.__annotations__ = {one.name: one.annotation for one in parameters}
    # What `inspect.signature` looks for first; functions have no such attribute until one is set.
    vars(spread)["__signature__"] = Signature(parameters)
    return spread


def _parameters_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(group)
    ]
