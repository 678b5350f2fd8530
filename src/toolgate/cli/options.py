"""The options that many commands share, each group a dataclass; `spreading` hands them to commands."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from toolgate.catalog.clients import KEY_VARIABLE
from toolgate.cli.client.rest import RestClient, open_client
from toolgate.cli.defaults import DEFAULT_URL
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.output import Output

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
    mode: Annotated[
        Literal["list", "find"] | None,
        Option("--mode", help="`find`: where tools are found and not listed.", rich_help_panel=_SCOPE),
    ] = None

    @property
    def query(self) -> dict[str, str]:
        """The parameters that were given. An empty value is one: it selects nothing."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in given.items() if value is not None}
