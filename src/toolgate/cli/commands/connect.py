"""`toolgate connect`: the entry for a client, printed or written into its settings.

The settings file of another program is replaced atomically, with a backup next to it. A file that is not
plain JSON is rejected: rewriting it would lose comments.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument

from toolgate.catalog.clients import (
    CLIENT_PROGRAMS,
    KEY_VARIABLE,
    ClientKind,
    ClientProgram,
    GatewayEndpoint,
    describe_selection,
    warn_about_length,
)
from toolgate.cli.command import CommandError, UsageError, command
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render import layout as ui
from toolgate.disk import replace_file
from toolgate.model.http import is_loopback
from toolgate.surfaces.http.parsing import format_scope_url


def render_connection(
    program: ClientProgram, endpoint: GatewayEndpoint, note: str = "", warnings: Sequence[str] = ()
) -> RenderableType:
    """The program's own command if it has one, the JSON entry, and the next step."""
    command = program.command(endpoint) if program.command else None
    file = _find_user_settings(program)
    where = f"{'or ' if command else ''}add to {f'`{file}`' if file else 'its settings'}"
    document = ui.encode_json(program.document(endpoint), indent=2)
    return ui.stack_parts(
        ui.sentence(Text(program.title, style="bold"), " at ", ui.cell(endpoint.url)),
        Text(note) if note else None,
        ui.render_warnings(warnings),
        ui.copyable(command, "run", ui.DIM) if command else None,
        ui.copyable(document, where, ui.DIM),
        _render_key_note(endpoint),
        Text(f"then {program.after}", style=ui.DIM) if program.after else None,
    )


def _render_merged(
    program: ClientProgram, endpoint: GatewayEndpoint, merged: "MergeResult", warnings: Sequence[str]
) -> RenderableType:
    """What changed in the file, and the gateway's warnings."""
    warned = ui.render_warnings(warnings)
    if not merged.is_changed:
        return ui.group_parts(ui.done("already in ", ui.bold(merged.path)), warned)
    before = ui.sentence(Text("  the file before: ", style=ui.DIM), ui.cell(merged.backup, ui.DIM))
    return ui.group_parts(
        ui.done(ui.bold(endpoint.name), " is in ", ui.bold(merged.path)),
        before if merged.backup else None,
        _render_key_note(endpoint),
        Text(f"  now {program.after}", style=ui.DIM),
        warned,
    )


def _render_key_note(endpoint: GatewayEndpoint) -> Text | None:
    note = f"the client needs the key in its environment, as {KEY_VARIABLE}"
    return Text(note, style=ui.WARN) if endpoint.needs_key else None


_FIRST_INDENT: Final = re.compile(r"\n([ \t]+)\S")


class MergeResult(NamedTuple):
    """The result of writing a file. `backup` is None if there was no file before."""

    path: Path
    is_changed: bool
    backup: Path | None = None


def merge_entry(
    path: Path, section: str, name: str, entry: Mapping[str, Any], *, now: datetime
) -> MergeResult:
    """Write `entry` as `name` under `section` of the JSON file at `path`, which may be new."""
    # Links are followed: the file that a user keeps elsewhere is changed, and the link stays.
    path = path.resolve()
    old_text, document = _read(path)
    servers = document.setdefault(section, {})
    if not isinstance(servers, dict):
        raise _refuse(path, f"`{section}` in it is not an object")
    present = servers.get(name)
    merged = _merge(path, name, present, entry)
    if merged == present:
        return MergeResult(path, is_changed=False)
    servers[name] = merged
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = None if old_text is None else _back_up(path, now)
        replace_file(path, _encode(document, old_text).encode(), keeps_mode=True)
    except OSError as exc:
        raise _refuse(path, f"it cannot be written: {exc}") from exc
    return MergeResult(path, is_changed=True, backup=backup)


def _merge(path: Path, name: str, present: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Update our entry and keep members that the user added. An entry of another program is an error."""
    if present is None:
        return dict(entry)
    if not isinstance(present, dict) or _address(present) != _address(entry):
        hint = "choose another name with --name"
        raise CommandError(f"`{path}` already has another server `{name}`", hint=hint)
    return {**present, **entry}


def _address(entry: Mapping[str, Any]) -> str | None:
    """Host and port of the gateway in an entry."""
    candidates = [entry.get("url"), entry.get("serverUrl"), *(entry.get("args") or [])]
    for one in candidates:
        if isinstance(one, str) and one.startswith(("http://", "https://")):
            return urlsplit(one).netloc
    return None


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """The text of the file, None without a file, and its content."""
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as exc:
        raise _refuse(path, f"it cannot be read: {exc}") from exc
    if not text.strip():
        return text, {}

    def check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # rewriting the file would lose one of the two
            repeated = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
            raise _refuse(path, f"duplicate key `{repeated}`")
        return found

    try:
        document = json.loads(text, object_pairs_hook=check_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as exc:
        raise _refuse(path, f"it is not plain JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise _refuse(path, "it does not contain an object")
    return text, document


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")


def _encode(document: Mapping[str, Any], old_text: str | None) -> str:
    """The document in the old file's indentation."""
    found = _FIRST_INDENT.search(old_text or "")
    indent = found[1] if found else 2
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Half of a surrogate pair, such as `\\ud83d`, can only be written as an escape.
        text = json.dumps(document, indent=indent)
    return text + "\n"


def _back_up(path: Path, now: datetime) -> Path:
    """A copy with the same bytes and permissions, under a new name."""
    backup = path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S-%f}.bak")
    content = path.read_bytes()
    with os.fdopen(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    backup.chmod(stat.S_IMODE(path.stat().st_mode))
    return backup


def _refuse(path: Path, why: str) -> CommandError:
    return CommandError(
        f"cannot change `{path}`: {why}",
        hint="add the entry yourself: the same command without --write prints it",
    )


app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class ClientEntryOptions:
    """The entry in the client's settings: its name, and where it is written."""

    name: Annotated[str | None, "Name of the entry. Default: the task id, or `toolgate`."] = None
    write: Annotated[bool, "Write the entry to the client's settings, with a backup next to them."] = False
    project: Annotated[bool, "With --write: use the project settings in this directory."] = False


@command(app, "connect")
def connect_command(
    client: Annotated[ClientKind, Argument(help="Client program to connect to the gateway.")],
    scope: ScopeOptions,
    connection: GatewayConnection,
    entry: ClientEntryOptions,
    *,
    frozen: Annotated[bool, "Name each tool in the URL: tools that are added later do not appear."] = False,
) -> None:
    """Print the entry that a client needs, or write it.

    A URL with --servers follows its packages: tools that they add later appear. A URL with --tools or
    --frozen contains exactly the tools that it names.

    With --write, the command first checks the scope at the gateway: an unknown task, a wrong key or an
    unreachable gateway is an error. Other members of the client's settings do not change.
    """
    program = CLIENT_PROGRAMS[client]
    if frozen:
        seen = connection.get("/api/v1/mcp/scope", scope.query)
        if refusal := seen.get("refusal"):
            raise CommandError(refusal["message"], hint=refusal["hint"], code=refusal["code"])
        # The same scope, with each of its current tools by name.
        scope = replace(scope, servers=None, tools=",".join(seen["tools"]))
    host = urlsplit(connection.url).hostname
    endpoint = GatewayEndpoint(
        name=entry.name or scope.task or "toolgate",
        url=format_scope_url(connection.url, scope.query),
        needs_key=connection.load_key() is not None or not is_loopback(host or ""),
    )
    if entry.write:
        file = _find_user_settings(program)
        if entry.project:
            file = None if program.project_file is None else Path.cwd() / program.project_file
        if file is None:
            hint = "run it without --write, and paste what it prints"
            raise UsageError(f"{program.title} has no settings file here", hint=hint)
        warnings = _check_scope(connection, scope)
        entry_now, now = program.entry(endpoint), datetime.now().astimezone()
        merged = merge_entry(file, program.section, endpoint.name, entry_now, now=now)
        written = {
            "file": str(merged.path),
            "changed": merged.is_changed,
            "backup": str(merged.backup) if merged.backup else None,
            "url": endpoint.url,
            "warnings": warnings,
        }
        connection.show(written, _render_merged(program, endpoint, merged, warnings))
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
    connection.show(shown, render_connection(program, endpoint, note, warnings))


def _check_scope(connection: GatewayConnection, scope: ScopeOptions) -> list[str]:
    """The gateway's warnings about this URL. Raises CommandError if clients cannot use it."""
    seen = connection.get("/api/v1/mcp/scope", scope.query)
    refusal = seen.get("refusal")
    if refusal is not None and refusal["code"] != "too_many_tools":
        raise CommandError(refusal["message"], hint=refusal["hint"], code=refusal["code"])
    warnings = [*seen.get("warnings", ()), *filter(None, [warn_about_length(seen.get("url", ""))])]
    if refusal is not None:
        warnings.append(refusal["message"])
    elif not (warnings or seen["tools"]):
        warnings.append("no tool is visible at this URL: see `toolgate explain`")
    return warnings


def _find_user_settings(program: ClientProgram) -> Path | None:
    below_home = program.file_below_home(sys.platform)
    return None if below_home is None else Path.home() / below_home
