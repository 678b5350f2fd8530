"""`toolgate import`: a whole registry out of one file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.option_groups import spread_options
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.changes import render_import
from toolgate.cli.setting_options import StoreOptions, show_store_progress
from toolgate.registry.store.portable import import_store

app = typer.Typer(add_completion=False)


@app.command("import")
@spread_options
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
