"""The options of commands that serve, and of those that work on a registry without a gateway."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolgate.cli.failure import UsageError
from toolgate.cli.output import open_console
from toolgate.settings import LogLevel, Settings, load_settings


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """The settings one most often changes. All of them can stand in the file or in TOOLGATE_ variables."""

    listen: Annotated[str | None, Option("--listen", metavar="HOST:PORT", help="Address to bind.")] = None
    data: Annotated[
        Path | None, Option("--data", metavar="DIR", help="Where registry and audit log live.")
    ] = None
    registry_dir: Annotated[
        Path | None,
        Option("--mcp-registry-dir", metavar="DIR", help="Directory of server files, loaded and watched."),
    ] = None
    is_strict: Annotated[
        bool, Option("--strict", help="Refuse unknown fields and any invalid server file.")
    ] = False
    log_level: Annotated[LogLevel | None, Option("--log-level", help="How much is logged.")] = None
    config: Annotated[Path | None, Option("--config", help="TOML file with settings.")] = None

    def load(self, **more: Any) -> Settings:
        """The settings, with `more` as further defaults of the command's own."""
        given = {
            "listen": self.listen,
            "data_dir": self.data,
            "mcp_registry_dir": self.registry_dir,
            "strict": self.is_strict or None,
            "log_level": self.log_level,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return load_settings(self.config, os.environ, {**more, **chosen})


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """A data directory or a database; unless given, those of the settings."""

    data: Annotated[
        Path | None, Option("--data", metavar="DIR", help="The data directory of a gateway that is stopped.")
    ] = None
    database: Annotated[
        str | None, Option("--database", metavar="URL", help="`postgresql://…`, without its password.")
    ] = None
    config: Annotated[Path | None, Option("--config", help="TOML file with settings.")] = None

    @property
    def target(self) -> str | Path:
        """What `toolgate.registry.portable` calls a target."""
        if self.data is not None and self.database is not None:
            raise UsageError("give either --data or --database")
        given = {"data_dir": self.data, "database": self.database}
        settings = load_settings(self.config, os.environ, given)
        return settings.registry_file if self.data else settings.database or settings.registry_file


@contextmanager
def show_store_progress(what: str) -> Iterator[Callable[[int], None]]:
    """On a terminal: how many records and changes are done."""
    with open_console(to_stderr=True).status(f"{what}…") as status:
        yield lambda done: status.update(f"{what}: {done:,} records and changes…")
