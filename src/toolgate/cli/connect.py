"""`toolgate connect`: how a client is told about the gateway, printed or written into its settings."""

import sys
from collections.abc import Sequence
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

    Before it writes, it asks the gateway for what the client will see: an unknown task, a wrong key or a
    gateway that does not respond is an error. Whatever else is in the client's settings stays as it is.
    """
    program = PROGRAMS[client]
    host = urlsplit(connection.url).hostname
    door = Door(
        name=name or scope.task or "toolgate",
        url=door_url(connection.url, scope.query),
        needs_key=connection.load_key() is not None or not is_loopback(host or ""),
    )
    if write:
        file = _settings_file(program, is_for_project=project)
        _write(program, door, connection, file, _check_scope(connection, scope))
        return
    shown = {"client": client, "name": door.name, "url": door.url, "config": program.document(door)}
    connection.output.show(shown, render_connection(program, door, _users_file(program)))


def _settings_file(program: Program, *, is_for_project: bool) -> Path:
    file = _project_file(program) if is_for_project else _users_file(program)
    if file is None:
        raise CommandFailed(
            f"{program.title} has no settings file to write to here",
            hint="leave out --write and paste what is printed",
            exit_code=Exit.USAGE,
        )
    return file


def _check_scope(connection: Connection, scope: ScopeOptions) -> list[str]:
    """What the gateway warns of at this URL. Raises CommandFailed where a client could not use it."""
    with connection.open() as client:
        seen = client.get("/api/v1/mcp/scope", scope.query)
    refusal = seen.get("refusal")
    if refusal is not None and refusal["code"] != "too_many_tools":
        raise CommandFailed(refusal["message"], hint=refusal["hint"], code=refusal["code"])
    told = list(seen.get("warnings", ()))
    if refusal is not None:
        told.append(refusal["message"])
    elif not (told or seen["tools"]):
        told.append("no tool is visible at this URL: `toolgate explain` says why")
    return told


def _write(program: Program, door: Door, connection: Connection, file: Path, told: Sequence[str], /) -> None:
    merged = merge_entry(
        file, program.section, door.name, program.entry(door), now=datetime.now().astimezone()
    )
    shown = {
        "file": str(merged.path),
        "changed": merged.is_changed,
        "backup": str(merged.backup) if merged.backup else None,
        "url": door.url,
        "warnings": list(told),
    }
    connection.output.show(shown, render_merged(program, door, merged, told))


def _users_file(program: Program) -> Path | None:
    below_home = program.file_below_home(sys.platform)
    return None if below_home is None else Path.home() / below_home


def _project_file(program: Program) -> Path | None:
    return None if program.project_file is None else Path.cwd() / program.project_file
