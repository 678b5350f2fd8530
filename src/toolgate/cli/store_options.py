"""Which registry a command works on by itself, without a gateway, and how far it has come."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.output import open_console
from toolgate.settings import load_settings


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
            raise CommandFailed("give either --data or --database", exit_code=Exit.USAGE)
        given = {"data_dir": self.data, "database": self.database}
        settings = load_settings(self.config, os.environ, given)
        return settings.registry_file if self.data else settings.database or settings.registry_file


@contextmanager
def showing_progress(what: str) -> Iterator[Callable[[int], None]]:
    """On a terminal: how many records and changes are done."""
    with open_console(to_stderr=True).status(f"{what}…") as status:
        yield lambda done: status.update(f"{what}: {done:,} records and changes…")
