"""The options that many commands share, each group a dataclass; `spreading` hands them to commands.

Times in the past as people and programs write them: `7d`, `12h`, `30m`, a day, or unix milliseconds.
"""

import os
import re
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from typer import Option

from toolgate.catalog.clients import KEY_VARIABLE
from toolgate.cli.client.rest import RestClient, open_client
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.up import DEFAULT_URL

_GATEWAY = "Gateway"
_SCOPE = "Scope"


@dataclass(frozen=True, kw_only=True)
class GatewayConnection:
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
    def output(self) -> CommandOutput:
        return CommandOutput(as_json=self.as_json)

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
            raise CommandError(
                f"cannot read the key file `{self.key_file}`: {exc}",
                hint="give a file that holds one key and that you may read",
                exit_code=ExitCode.USAGE,
            ) from exc
        if not key:
            raise CommandError(
                f"the key file `{self.key_file}` is empty",
                hint="write the key into it, as `toolgate keys add` printed it",
                exit_code=ExitCode.USAGE,
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
    mode: Annotated[
        Literal["list", "find"] | None,
        Option("--mode", help="`find`: where tools are found and not listed.", rich_help_panel=_SCOPE),
    ] = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters that were given. An empty value is one: it selects nothing."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_UNIX_MS: Final = re.compile(r"[0-9]{11,15}")
"""From 1973 on: a bare `7` is more likely a slip for `7d`."""
_UNIT_MS: Final = {"d": 24 * 3_600_000, "h": 3_600_000, "m": 60_000}
_MAX_SPAN_MS: Final = 100 * 366 * _UNIT_MS["d"]

SINCE: Final = Option(
    "--since", metavar="TIME", help="How far back: `7d`, `12h`, `30m`, a day: `2026-11-01`, or unix ms."
)
SinceOption = Annotated[str, SINCE]


def parse_time(text: str, *, now_ms: int | None = None) -> int:
    """The time that is meant, in unix milliseconds."""
    now_ms = int(time.time() * 1e3) if now_ms is None else now_ms
    if _UNIX_MS.fullmatch(text):
        return int(text)
    span = _SPAN.fullmatch(text)
    if span is not None:
        back_ms = int(span[1]) * _UNIT_MS[span[2]]
        if back_ms <= _MAX_SPAN_MS:
            return max(0, now_ms - back_ms)
    try:
        at_ms = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1e3)
    except ValueError:
        at_ms = -1
    if not 0 <= at_ms < now_ms:
        raise CommandError(
            f"`{text}` is no time in the past",
            hint="write `7d`, `12h`, `30m`, a day: `2026-11-01`, or unix milliseconds",
            exit_code=ExitCode.USAGE,
        )
    return at_ms
