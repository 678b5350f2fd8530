"""`toolgate connect`: how a client is told about the gateway, printed or written into its settings."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import Argument, Option

from toolgate.catalog.clients import PROGRAMS, Assistant, Door, Program, describe_selection, warn_of_length
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.files.client_settings import merge_entry
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import Connection, ScopeOptions
from toolgate.cli.render.connect import render_connection, render_merged
from toolgate.model.addresses import is_loopback
from toolgate.surfaces.rest.links import door_url

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """The entry in the client's settings: its name, and where it is written."""

    name: Annotated[
        str | None, Option("--name", help="What the client calls it. Default: the task, or `toolgate`.")
    ] = None
    write: Annotated[
        bool, Option("--write", help="Put it into the client's own settings; a backup is kept next to them.")
    ] = False
    project: Annotated[
        bool, Option("--project", help="With --write: the settings of the project in this directory.")
    ] = False


@app.command("connect")
@spread_options
def connect_command(
    client: Annotated[Assistant, Argument(help="The program to connect.", show_default=False)],
    scope: ScopeOptions,
    connection: Connection,
    entry: EntryOptions,
    *,
    frozen: Annotated[
        bool,
        Option("--frozen", help="Name each tool of the scope in the URL: tools added later do not appear."),
    ] = False,
) -> None:
    """Print what to paste into a client, or write it there with --write.

    A URL with --servers follows its packages: tools that they add later appear. One with --tools, or with
    --frozen, is a frozen list of the tools that it names.

    Before it writes, it asks the gateway for what the client will see: an unknown task, a wrong key or a
    gateway that does not respond is an error. Whatever else is in the client's settings stays as it is.
    """
    program = PROGRAMS[client]
    scope = _freeze(connection, scope) if frozen else scope
    host = urlsplit(connection.url).hostname
    door = Door(
        name=entry.name or scope.task or "toolgate",
        url=door_url(connection.url, scope.query),
        needs_key=connection.load_key() is not None or not is_loopback(host or ""),
    )
    if entry.write:
        file = _settings_file(program, is_for_project=entry.project)
        _write(program, door, connection, file, _check_scope(connection, scope))
        return
    note = describe_selection(scope.query)
    told = list(filter(None, [warn_of_length(door.url)]))
    shown = {
        "client": client,
        "name": door.name,
        "url": door.url,
        "config": program.document(door),
        "note": note,
        "warnings": told,
    }
    connection.output.show(shown, render_connection(program, door, _users_file(program), note, told))


def _freeze(connection: Connection, scope: ScopeOptions) -> ScopeOptions:
    """The same scope with each of its tools by name, as the gateway has it now."""
    with connection.open() as client:
        seen = client.get("/api/v1/mcp/scope", scope.query)
    if refusal := seen.get("refusal"):
        raise CommandFailed(refusal["message"], hint=refusal["hint"], code=refusal["code"])
    return replace(scope, servers=None, tools=",".join(seen["tools"]))


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
    told = [*seen.get("warnings", ()), *filter(None, [warn_of_length(seen.get("url", ""))])]
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
