"""`toolgate backup` and `restore`: copies of a whole registry."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from toolgate.cli.command import JsonOption, UsageError, command, open_console, print_output
from toolgate.cli.contexts import URL_VARIABLE
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.changes import render_backup, render_restored
from toolgate.registry.store.engines import export_store, import_store
from toolgate.settings import load_settings

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The data directory or the database of a registry. Default: those of the settings."""

    data: Annotated[Path | None, "--data DIR", "Data directory of a gateway that is stopped."] = None
    database: Annotated[
        str | None, "--database URL", "PostgreSQL: `postgresql://…`, without the password."
    ] = None
    config: Annotated[Path | None, "TOML file with the settings of the gateway."] = None

    @property
    def target(self) -> str | Path:
        """What is read, or filled."""
        if self.data is not None and self.database is not None:
            raise UsageError("give either --data or --database")
        given = {"data_dir": self.data, "database": self.database}
        settings = load_settings(self.config, os.environ, given)
        return settings.registry_file if self.data else settings.database or settings.registry_file


@contextmanager
def _show_progress(what: str) -> Iterator[Callable[[int], None]]:
    """On a terminal: the number of records and changes that are done."""
    with open_console(to_stderr=True).status(f"{what}…") as status:
        yield lambda done: status.update(f"{what}: {done:,} records and changes…")


@command(app, "backup")
def backup_command(
    connection: GatewayConnection,
    store: StoreOptions,
    out: Annotated[
        Path | None,
        Argument(help="File to write, which must not exist. Default: the running gateway chooses."),
    ] = None,
) -> None:
    """Write all records and their history to a file.

    Without OUT the running gateway writes the file into its data directory, and nothing stops. With OUT this
    command reads the data directory or the database itself: on SQLite the gateway must be stopped. The file
    holds keys as hashes, can be read by its owner only, and `toolgate restore` reads it.

    \b
    toolgate backup
    toolgate backup records.jsonl --data .toolgate
    toolgate backup records.jsonl --database postgresql://db.example/toolgate
    """
    if out is None:
        if store != StoreOptions():
            hint = "name the file to write: `toolgate backup OUT`; without OUT the running gateway writes it"
            raise UsageError("--data, --database and --config need a file to write", hint=hint)
        connection.send("POST", "/admin/api/backup", render_backup)
        return
    is_named = connection.given_url not in {None, os.environ.get(URL_VARIABLE)}
    if is_named or connection.context_name is not None or connection.key_file is not None:
        hint = "leave out OUT; or leave out the gateway, and give the --data or --database of a stopped one"
        raise UsageError("a running gateway writes its backup into its own data directory", hint=hint)
    if out.exists():
        raise UsageError(f"`{out}` already exists", hint="choose another name, or remove it")
    with _show_progress("writing the backup") as report:
        exported = export_store(store.target, out, report)
    response = {"path": str(out), **asdict(exported)}
    connection.show(response, render_backup(response))


@command(app, "restore")
def restore_command(
    file: Annotated[Path, Argument(help="What `toolgate backup` wrote.")],
    store: StoreOptions,
    *,
    as_json: JsonOption = False,
) -> None:
    """Fill an empty registry from a backup.

    The whole file is checked before anything is stored. Revisions and history are kept. The gateway must be
    stopped; nodes list everything again.

    \b
    toolgate restore records.jsonl --data .toolgate
    """
    with _show_progress("restoring") as report:
        response = asdict(import_store(file, store.target, report))
    print_output(response, render_restored(response), as_json=as_json)
