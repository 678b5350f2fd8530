"""`toolgate connect`: how a client is told about the gateway, printed or written into its settings."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import Argument, Option

from toolgate.cli.assistants import PROGRAMS, Assistant, Door, Program, door_url
from toolgate.cli.config_merge import merge_entry
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.options import Connection, ScopeOptions
from toolgate.cli.render.connect import render_connection, render_merged
from toolgate.cli.spreading import spread_options
from toolgate.model.addresses import is_loopback

app = typer.Typer(add_completion=False)


@app.command("connect")
@spread_options
def connect_command(
    client: Annotated[Assistant, Argument(help="The program to connect.", show_default=False)],
    scope: ScopeOptions,
    connection: Connection,
    *,
    name: Annotated[
        str | None, Option("--name", help="What the client calls it. Default: the task, or `toolgate`.")
    ] = None,
    write: Annotated[
        bool, Option("--write", help="Put it into the client's own settings; a backup stays beside them.")
    ] = False,
    project: Annotated[
        bool, Option("--project", help="With --write: the settings of the project in this directory.")
    ] = False,
) -> None:
    """Print what to paste into a client, or write it there with --write.

    Whatever else is in the client's settings stays as it is.
    """
    program = PROGRAMS[client]
    host = urlsplit(connection.url).hostname
    door = Door(
        name=name or scope.task or "toolgate",
        url=door_url(connection.url, scope.query),
        needs_key=connection.load_key() is not None or not is_loopback(host or ""),
    )
    if write:
        _write(program, door, connection, Path.cwd() if project else None)
        return
    file = program.file(home=Path.home(), platform=sys.platform)
    shown = {"client": client, "name": door.name, "url": door.url, "config": program.document(door)}
    connection.output.show(shown, render_connection(program, door, file))


def _write(program: Program, door: Door, connection: Connection, project: Path | None) -> None:
    file = program.file(home=Path.home(), platform=sys.platform, project=project)
    if file is None:
        raise CommandFailed(
            f"{program.title} has no settings file to write to here",
            hint="leave out --write and paste what is printed",
            exit_code=Exit.USAGE,
        )
    merged = merge_entry(
        file, program.section, door.name, program.entry(door), now=datetime.now().astimezone()
    )
    shown = {
        "file": str(merged.path),
        "changed": merged.is_changed,
        "backup": str(merged.backup) if merged.backup else None,
        "url": door.url,
    }
    connection.output.show(shown, render_merged(program, door, merged))
