"""`toolgate connect`: how a client is told about the gateway, printed or written into its settings."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import Argument, Option

from toolgate.catalog.assistants import PROGRAMS, Assistant, Door, Program
from toolgate.cli.config_merge import merge_entry
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.options import Connection, ScopeOptions
from toolgate.cli.render.connect import render_connection, render_merged
from toolgate.cli.spreading import spread_options
from toolgate.model.addresses import is_loopback
from toolgate.surfaces.rest.links import door_url

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
        _write(program, door, connection, is_for_project=project)
        return
    shown = {"client": client, "name": door.name, "url": door.url, "config": program.document(door)}
    connection.output.show(shown, render_connection(program, door, _users_file(program)))


def _write(program: Program, door: Door, connection: Connection, *, is_for_project: bool) -> None:
    file = _project_file(program) if is_for_project else _users_file(program)
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


def _users_file(program: Program) -> Path | None:
    below_home = program.file_below_home(sys.platform)
    return None if below_home is None else Path.home() / below_home


def _project_file(program: Program) -> Path | None:
    return None if program.project_file is None else Path.cwd() / program.project_file
