"""`toolgate export`: a whole registry into one file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.option_groups import spread_options
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.changes import render_backup
from toolgate.cli.setting_options import StoreOptions, show_store_progress
from toolgate.registry.store.portable import export_store

app = typer.Typer(add_completion=False)


@app.command("export")
@spread_options
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
        raise CommandError(
            f"`{out}` is there already", hint="choose another name, or remove it", exit_code=ExitCode.USAGE
        )
    with show_store_progress("exporting") as tell:
        exported = export_store(store.target, out, tell)
    answer = {"path": str(out), **asdict(exported)}
    CommandOutput(as_json=as_json).show(answer, render_backup(answer))
