"""`toolgate plan`: what a change would do to each task, before it is made."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.options import Connection
from toolgate.cli.record_files import WRITTEN_KINDS, load_record
from toolgate.cli.render.changes import render_plan
from toolgate.cli.spreading import spread_options

app = typer.Typer(add_completion=False)


@app.command("plan")
@spread_options
def plan_command(
    connection: Connection,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="TOML or JSON file with a server, task or profile; `-` reads JSON."),
    ] = None,
    delete: Annotated[
        str | None, Option("--delete", help="Plan a removal instead: `server/ID`, `task/ID`, `profile/ID`.")
    ] = None,
) -> None:
    """Show which tools each task would gain and lose. Nothing is written."""
    change = _change(file, delete)
    with connection.open() as client:
        answer = client.post("/admin/api/plan", change)
    connection.output.show(answer, render_plan(answer))


def _change(file: Path | None, delete: str | None) -> dict[str, Any]:
    if (file is None) == (delete is None):
        raise CommandFailed("give either --file or --delete", exit_code=Exit.USAGE)
    if file is not None:
        record = load_record(file)
        return {"kind": record.kind, "id": record.id, "body": record.body}
    kind, slash, record_id = str(delete).partition("/")
    if kind not in WRITTEN_KINDS or not slash:
        raise CommandFailed(
            f"`{delete}` names no record",
            hint="write `server/ID`, `task/ID` or `profile/ID`",
            exit_code=Exit.USAGE,
        )
    return {"kind": kind, "id": record_id, "body": None}
