"""The options that many commands share. Each group is a dataclass that `spread_options` spreads."""

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import RenderableType
from typer import Option

from toolgate.catalog.clients import KEY_VARIABLE
from toolgate.cli.command import (
    DEFAULT_URL,
    JsonOption,
    UsageError,
    command,
    drop_unset,
    open_console,
    print_output,
)
from toolgate.cli.contexts import (
    CONTEXT_VARIABLE,
    URL_VARIABLE,
    GatewayTarget,
    is_same_address,
    load_key_file,
    resolve_target,
)
from toolgate.cli.render.layout import WARN, cell, sentence
from toolgate.cli.rest import Query, RestClient, open_client

_gateway_option = partial(Option, rich_help_panel="Gateway")
_URL_HELP: Final = f"Address of the gateway. Default: that of the context, else `{DEFAULT_URL}`."
_CONTEXT_HELP: Final = (
    f"Context of `toolgate login` with address and key. Default: {CONTEXT_VARIABLE}, else the current one."
)
_KEY_FILE_HELP: Final = f"File with the key to use. Default: {KEY_VARIABLE}, else the key of the context."
_scope_option = partial(Option, rich_help_panel="Scope")

Render = Callable[[Any], RenderableType]


@dataclass(frozen=True, kw_only=True)
class GatewayConnection:
    """Which gateway a command connects to, with which key, and how it prints the response."""

    given_url: Annotated[str | None, _gateway_option("--url", envvar=URL_VARIABLE, help=_URL_HELP)] = None
    key_file: Annotated[Path | None, _gateway_option(help=_KEY_FILE_HELP)] = None
    context_name: Annotated[str | None, _gateway_option("--context", metavar="NAME", help=_CONTEXT_HELP)] = (
        None
    )
    as_json: JsonOption = False

    @cached_property
    def target(self) -> GatewayTarget:
        """Which gateway it is, and its key unless that is in a file."""
        has_key = self.key_file is not None
        target = resolve_target(os.environ, url=self.given_url, context=self.context_name, has_key=has_key)
        if target.ignored is not None:
            # `--url` or the variable outranks it: a change must not go to another gateway unnoticed.
            note = f"`{target.url}` is used, and not context `{target.ignored}`"
            open_console(to_stderr=True).print(sentence(("warning: ", WARN), cell(note)), soft_wrap=True)
        return target

    @property
    def url(self) -> str:
        return self.target.url

    def show(self, value: Any, rendered: RenderableType, *, is_line: bool = False) -> None:
        """Print `value` to a program or `rendered` to a person. `is_line`: do not wrap it."""
        print_output(value, rendered, as_json=self.as_json, is_line=is_line)

    def open(self) -> AbstractContextManager[RestClient]:
        """A client of the gateway."""
        return open_client(self.url, self.load_key())

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """The response of a path, which the command does not print as it is."""
        with self.open() as client:
            return client.get(path, query)

    def print_result(
        self, path: str, render: Render, query: Query | None = None, *, member: str | None = None
    ) -> None:
        """Print the response of a path; to programs only its `member`, if that is given."""
        response = self.get(path, query)
        self.show(response if member is None else response[member], render(response))

    def send(self, method: str, path: str, render: Render, body: Any = None, **more: Any) -> dict[str, Any]:
        """Send a request as `RestClient.send` does, and print the response."""
        with self.open() as client:
            response = client.send(method, path, body, **more)
        self.show(response, render(response))
        return response

    def print_list(self, path: str, member: str, render: Render) -> None:
        with self.open() as client:
            found = client.pages(path, member)
        self.show(found, render(found))

    def load_key(self) -> str | None:
        """The key, from a file, the environment or a context; never an argument, which `ps` would show."""
        return self.target.key if self.key_file is None else load_key_file(self.key_file)

    def load_key_for(self, url: str) -> str | None:
        """The key, for another gateway than this one. The key of a context is for its own gateway only."""
        name = self.target.context
        if self.key_file is None and name is not None and not is_same_address(url, self.url):
            hint = "give the key to send there with --key-file or TOOLGATE_KEY"
            raise UsageError(f"the key of context `{name}` is not sent to `{url}`", hint=hint)
        return self.load_key()


@dataclass(frozen=True, kw_only=True)
class ScopeOptions:
    """The parameters of the URL of the MCP endpoint."""

    task: Annotated[str | None, _scope_option(help="Task id: the tools that this task may use.")] = None
    servers: Annotated[str | None, _scope_option(help="Server ids, joined by commas: only their tools.")] = (
        None
    )
    tools: Annotated[str | None, _scope_option(help="Only these tools: `git.git_log,time.*`.")] = None
    profile: Annotated[str | None, _scope_option(help="Profile id, which narrows the tools further.")] = None
    mode: Annotated[
        Literal["list", "find"] | None,
        _scope_option(help="`find`: three tools that search the others and call them."),
    ] = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters that are set. An empty value is set, and selects nothing."""
        return drop_unset(asdict(self))


# Times in the past: a duration back from now, a day, or unix milliseconds.
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3}(?=s))?)([dhms])")
_UNIX_MS: Final = re.compile(r"[0-9]{11,15}")
"""From 1973 on: a bare `7` is more likely a slip for `7d`."""
_UNIT_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_MAX_DURATION_S: Final = 100 * 366 * 86_400
"""A century: longer is a slip, and dates end at the year 9999."""
_DURATION_HINT: Final = "write a number and a unit: `30d`, `12h`, `30m` or `45s`"

SINCE: Final = Option(
    "--since", metavar="TIME", help="How far back: `30d`, `12h`, `30m`, `45s`, or a day: `2026-11-01`."
)
SinceOption = Annotated[str, SINCE]


def parse_duration(text: str) -> float:
    """A duration such as `30d`, `12h`, `30m` or `45s`, in seconds. Raises UsageError."""
    seconds = _match_duration(text)
    if seconds is None:
        raise UsageError(f"`{text}` is not a duration", hint=_DURATION_HINT)
    return seconds


def _match_duration(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    seconds = 0.0 if found is None else float(found[1]) * _UNIT_S[found[2]]
    return seconds if 0 < seconds <= _MAX_DURATION_S else None


duration_option = partial(Option, metavar="DURATION")
"""An option whose value `parse_duration` reads."""


def parse_time(text: str, *, now_ms: int | None = None) -> int:
    """A time in the past, in unix milliseconds."""
    now_ms = int(time.time() * 1e3) if now_ms is None else now_ms
    if _UNIX_MS.fullmatch(text):
        return int(text)
    back_s = _match_duration(text)
    if back_s is not None:
        return max(0, int(now_ms - back_s * 1_000))
    try:
        at_ms = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1e3)
    except ValueError:
        at_ms = -1
    if not 0 <= at_ms < now_ms:
        hint = "write `30d`, `12h`, `30m`, `45s`, a day: `2026-11-01`, or unix milliseconds"
        raise UsageError(f"`{text}` is not a time in the past", hint=hint)
    return at_ms


def add_list_commands(group: typer.Typer, summary: str, path: str, member: str, render: Render) -> None:
    """The command `list`, which the group also runs by itself."""

    @command(group, None)
    @command(group, "list", summary)
    def list_all(context: typer.Context, connection: GatewayConnection) -> None:
        if context.invoked_subcommand is None:
            connection.print_list(path, member, render)
