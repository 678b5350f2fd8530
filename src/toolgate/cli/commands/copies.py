"""`toolgate backup`, `export` and `import`: copies of a whole registry."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.failure import UsageError
from toolgate.cli.option_groups import command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.changes import render_backup, render_import
from toolgate.cli.setting_options import StoreOptions, show_store_progress
from toolgate.registry.store.engines import export_store, import_store

app = typer.Typer(add_completion=False)


@command(app, "backup")
def backup_command(connection: GatewayConnection) -> None:
    """Have the gateway write all records and their history into a file in its data directory.

    The file is on the gateway's machine, and `toolgate import` reads it. Nothing has to be stopped.
    """
    with connection.open() as client:
        answer = client.post("/admin/api/backup")
    connection.output.show(answer, render_backup(answer))


@command(app, "export")
def export_command(
    out: Annotated[Path, Argument(help="The file to write; it must not be there yet.", show_default=False)],
    store: StoreOptions,
    *,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Write all records, keys as hashes, and their history into one file, readable by its owner only.

    On SQLite the gateway must be stopped; ask a running one with `toolgate backup`.
    """
    if out.exists():
        raise UsageError(f"`{out}` is there already", hint="choose another name, or remove it")
    with show_store_progress("exporting") as tell:
        exported = export_store(store.target, out, tell)
    answer = {"path": str(out), **asdict(exported)}
    CommandOutput(as_json=as_json).show(answer, render_backup(answer))


@command(app, "import")
def import_command(
    file: Annotated[Path, Argument(help="What `export` or `backup` wrote.", show_default=False)],
    store: StoreOptions,
    *,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Fill an empty data directory or database from a file, revisions and history included.

    All of the file is checked before anything is stored. Nodes notice, and list everything again.
    """
    with show_store_progress("importing") as tell:
        answer = asdict(import_store(file, store.target, tell))
    CommandOutput(as_json=as_json).show(answer, render_import(answer))
