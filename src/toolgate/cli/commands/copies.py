"""`toolgate backup`, `export` and `import`: copies of a whole registry."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.command import CommandOutput, JsonOption, UsageError, command, open_console
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_backup, render_import
from toolgate.registry.store.engines import export_store, import_store
from toolgate.settings import load_settings

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """A data directory or a database; unless given, those of the settings."""

    data: Annotated[
        Path | None, Option(metavar="DIR", help="The data directory of a gateway that is stopped.")
    ] = None
    database: Annotated[str | None, Option(metavar="URL", help="`postgresql://…`, without its password.")] = (
        None
    )
    config: Annotated[Path | None, "TOML file with settings."] = None

    @property
    def target(self) -> str | Path:
        """What is exported, or imported into."""
        if self.data is not None and self.database is not None:
            raise UsageError("give either --data or --database")
        given = {"data_dir": self.data, "database": self.database}
        settings = load_settings(self.config, os.environ, given)
        return settings.registry_file if self.data else settings.database or settings.registry_file


@contextmanager
def _show_progress(what: str) -> Iterator[Callable[[int], None]]:
    """On a terminal: how many records and changes are done."""
    with open_console(to_stderr=True).status(f"{what}…") as status:
        yield lambda done: status.update(f"{what}: {done:,} records and changes…")


@command(app, "backup")
def backup_command(connection: GatewayConnection) -> None:
    """Have the gateway write all records and their history into a file in its data directory.

    The file is on the gateway's machine, and `toolgate import` reads it. Nothing has to be stopped.
    """
    connection.send("POST", "/admin/api/backup", render_backup)


@command(app, "export")
def export_command(
    out: Annotated[Path, Argument(help="The file to write; it must not be there yet.", show_default=False)],
    store: StoreOptions,
    *,
    as_json: JsonOption = False,
) -> None:
    """Write all records, keys as hashes, and their history into one file, readable by its owner only.

    On SQLite the gateway must be stopped; ask a running one with `toolgate backup`.
    """
    if out.exists():
        raise UsageError(f"`{out}` is there already", hint="choose another name, or remove it")
    with _show_progress("exporting") as report:
        exported = export_store(store.target, out, report)
    response = {"path": str(out), **asdict(exported)}
    CommandOutput(as_json=as_json).show(response, render_backup(response))


@command(app, "import")
def import_command(
    file: Annotated[Path, Argument(help="What `export` or `backup` wrote.", show_default=False)],
    store: StoreOptions,
    *,
    as_json: JsonOption = False,
) -> None:
    """Fill an empty data directory or database from a file, revisions and history included.

    All of the file is checked before anything is stored. Nodes notice, and list everything again.
    """
    with _show_progress("importing") as report:
        response = asdict(import_store(file, store.target, report))
    CommandOutput(as_json=as_json).show(response, render_import(response))
