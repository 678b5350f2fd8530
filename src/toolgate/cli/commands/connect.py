"""`toolgate connect`: the entry for a client, printed or written into its settings."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument, Option

from toolgate.catalog.clients import (
    CLIENT_PROGRAMS,
    KEY_VARIABLE,
    ClientKind,
    ClientProgram,
    GatewayEndpoint,
    describe_selection,
    warn_about_length,
)
from toolgate.cli.failure import CommandError, UsageError
from toolgate.cli.files.client_settings import MergeResult, merge_entry
from toolgate.cli.option_groups import command
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render import layout as ui
from toolgate.model.http import is_loopback
from toolgate.surfaces.http.selection import format_scope_url


def render_connection(
    program: ClientProgram,
    endpoint: GatewayEndpoint,
    file: Path | None,
    note: str = "",
    warnings: Sequence[str] = (),
) -> RenderableType:
    """The command where the program has one, the JSON in any case, and what to do then."""
    command = program.command(endpoint) if program.command else None
    where = f"into `{file}`" if file else "into its settings"
    return ui.stack_parts(
        ui.sentence(Text(program.title, style="bold"), " at ", ui.cell(endpoint.url)),
        Text(note) if note else None,
        ui.render_warnings(warnings),
        Group(Text("run", style=ui.DIM), ui.copyable(command)) if command else None,
        Group(Text(f"{'or ' if command else ''}put {where}", style=ui.DIM), _document(program, endpoint)),
        _render_key_note(endpoint),
        Text(f"then {program.after}", style=ui.DIM) if program.after else None,
    )


def render_merged(
    program: ClientProgram, endpoint: GatewayEndpoint, merged: MergeResult, warnings: Sequence[str] = ()
) -> RenderableType:
    """What happened to the file, and what the gateway warned of."""
    happened = _render_change(program, endpoint, merged)
    rendered = ui.render_warnings(warnings)
    return happened if rendered is None else Group(happened, rendered)


def _render_change(program: ClientProgram, endpoint: GatewayEndpoint, merged: MergeResult) -> RenderableType:
    if not merged.is_changed:
        return ui.done("already in ", ui.bold(merged.path))
    lines = [ui.done(ui.bold(endpoint.name), " is in ", ui.bold(merged.path))]
    if merged.backup:
        lines.append(ui.sentence(Text("  the file before: ", style=ui.DIM), ui.cell(merged.backup, ui.DIM)))
    note = _render_key_note(endpoint)
    return Group(*lines, *([note] if note else []), Text(f"  now {program.after}", style=ui.DIM))


def _document(program: ClientProgram, endpoint: GatewayEndpoint) -> Text:
    return ui.copyable(ui.encode_json(program.document(endpoint), indent=2))


def _render_key_note(endpoint: GatewayEndpoint) -> Text | None:
    if not endpoint.needs_key:
        return None
    return Text(f"the client needs the key in its environment, as {KEY_VARIABLE}", style=ui.WARN)


app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class ClientEntryOptions:
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


@command(app, "connect")
def connect_command(
    client: Annotated[ClientKind, Argument(help="The program to connect.", show_default=False)],
    scope: ScopeOptions,
    connection: GatewayConnection,
    entry: ClientEntryOptions,
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
    program = CLIENT_PROGRAMS[client]
    scope = _pin_tools(connection, scope) if frozen else scope
    host = urlsplit(connection.url).hostname
    endpoint = GatewayEndpoint(
        name=entry.name or scope.task or "toolgate",
        url=format_scope_url(connection.url, scope.query),
        needs_key=connection.load_key() is not None or not is_loopback(host or ""),
    )
    if entry.write:
        file = _choose_settings_file(program, is_for_project=entry.project)
        _write(program, endpoint, connection, file, _check_scope(connection, scope))
        return
    note = describe_selection(scope.query)
    warnings = list(filter(None, [warn_about_length(endpoint.url)]))
    shown = {
        "client": client,
        "name": endpoint.name,
        "url": endpoint.url,
        "config": program.document(endpoint),
        "note": note,
        "warnings": warnings,
    }
    connection.output.show(
        shown, render_connection(program, endpoint, _find_user_settings(program), note, warnings)
    )


def _pin_tools(connection: GatewayConnection, scope: ScopeOptions) -> ScopeOptions:
    """The same scope with each of its tools by name, as the gateway has it now."""
    with connection.open() as client:
        seen = client.get("/api/v1/mcp/scope", scope.query)
    if refusal := seen.get("refusal"):
        raise CommandError(refusal["message"], hint=refusal["hint"], code=refusal["code"])
    return replace(scope, servers=None, tools=",".join(seen["tools"]))


def _choose_settings_file(program: ClientProgram, *, is_for_project: bool) -> Path:
    file = _find_project_settings(program) if is_for_project else _find_user_settings(program)
    if file is None:
        raise UsageError(
            f"{program.title} has no settings file to write to here",
            hint="leave out --write and paste what is printed",
        )
    return file


def _check_scope(connection: GatewayConnection, scope: ScopeOptions) -> list[str]:
    """What the gateway warns of at this URL. Raises CommandError where a client could not use it."""
    with connection.open() as client:
        seen = client.get("/api/v1/mcp/scope", scope.query)
    refusal = seen.get("refusal")
    if refusal is not None and refusal["code"] != "too_many_tools":
        raise CommandError(refusal["message"], hint=refusal["hint"], code=refusal["code"])
    warnings = [*seen.get("warnings", ()), *filter(None, [warn_about_length(seen.get("url", ""))])]
    if refusal is not None:
        warnings.append(refusal["message"])
    elif not (warnings or seen["tools"]):
        warnings.append("no tool is visible at this URL: `toolgate explain` says why")
    return warnings


def _write(
    program: ClientProgram,
    endpoint: GatewayEndpoint,
    connection: GatewayConnection,
    file: Path,
    warnings: Sequence[str],
    /,
) -> None:
    merged = merge_entry(
        file, program.section, endpoint.name, program.entry(endpoint), now=datetime.now().astimezone()
    )
    shown = {
        "file": str(merged.path),
        "changed": merged.is_changed,
        "backup": str(merged.backup) if merged.backup else None,
        "url": endpoint.url,
        "warnings": list(warnings),
    }
    connection.output.show(shown, render_merged(program, endpoint, merged, warnings))


def _find_user_settings(program: ClientProgram) -> Path | None:
    below_home = program.file_below_home(sys.platform)
    return None if below_home is None else Path.home() / below_home


def _find_project_settings(program: ClientProgram) -> Path | None:
    return None if program.project_file is None else Path.cwd() / program.project_file
