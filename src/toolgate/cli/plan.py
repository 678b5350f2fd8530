"""`toolgate plan`: what a change would do to each task, before it is made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from toolgate.cli.change_sets import PLAN, PruneOption, build_change_set, post_changes
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.modules import hash_modules
from toolgate.cli.files.records import load_records
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import write_json
from toolgate.cli.render.changes import render_plan

app = typer.Typer(add_completion=False)


@app.command("plan")
@spread_options
def plan_command(
    connection: GatewayConnection,
    *,
    files: Annotated[
        list[Path] | None,
        Option("--file", "-f", help="File or directory of records, as in `toolgate apply`. May be repeated."),
    ] = None,
    deletes: Annotated[
        list[str] | None,
        Option("--delete", help="Plan a removal: `server/ID`, `task/ID`, `profile/ID`. May be repeated."),
    ] = None,
    prune: PruneOption = False,
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Also write the plan into this file, as JSON.")
    ] = None,
) -> None:
    """Show which records would change, and which tools each task would gain and lose. Nothing is written.

    The plan has an id. `toolgate apply --require-plan ID` makes the change only if it still does exactly
    what the plan showed.
    """
    _check_options(files, deletes, prune=prune)
    records, _ = hash_modules(load_records(files) if files else [])
    body = build_change_set(records, deletes=deletes or (), prune=prune)
    with connection.open() as client:
        answer = post_changes(client, PLAN, body, records)
    if out is not None:
        write_json(out, answer)
    connection.output.show(
        answer, render_plan(answer, None if deletes else _build_apply_command(files, prune=prune))
    )


def _check_options(files: Sequence[Path] | None, deletes: Sequence[str] | None, *, prune: bool) -> None:
    if not files and not deletes:
        raise CommandError(
            "there is nothing to plan", hint="give --file or --delete", exit_code=ExitCode.USAGE
        )
    if prune and not files:
        raise CommandError(
            "--prune needs --file", hint="name the files that say it all", exit_code=ExitCode.USAGE
        )


def _build_apply_command(files: Sequence[Path] | None, *, prune: bool) -> list[str]:
    words = [word for file in files or () for word in ("-f", str(file))]
    return ["apply", *words, *(["--prune"] if prune else [])]
