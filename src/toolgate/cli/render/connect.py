"""What to paste into a client, and what was written there. Lines to paste are never wrapped."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.catalog.clients import KEY_VARIABLE, Door, Program
from toolgate.cli.escape import encode_json
from toolgate.cli.files.client_settings import Merged
from toolgate.cli.render.layout import DIM, OK, WARN, cell, sentence, stack, verbatim, warnings


def render_connection(
    program: Program, door: Door, file: Path | None, note: str = "", told: Sequence[str] = ()
) -> RenderableType:
    """The command where the program has one, the JSON in any case, and what to do then."""
    command = program.command(door) if program.command else None
    where = f"into `{file}`" if file else "into its settings"
    return stack(
        sentence(Text(program.title, style="bold"), " at ", cell(door.url)),
        Text(note) if note else None,
        warnings(told),
        Group(Text("run", style=DIM), verbatim(command)) if command else None,
        Group(Text(f"{'or ' if command else ''}put {where}", style=DIM), _document(program, door)),
        _key_note(door),
        Text(f"then {program.after}", style=DIM) if program.after else None,
    )


def render_merged(program: Program, door: Door, merged: Merged, told: Sequence[str] = ()) -> RenderableType:
    """What happened to the file, and what the gateway warned of."""
    happened = _render_change(program, door, merged)
    noted = warnings(told)
    return happened if noted is None else Group(happened, noted)


def _render_change(program: Program, door: Door, merged: Merged) -> RenderableType:
    if not merged.is_changed:
        return sentence(Text("✓ ", style=OK), "already in ", cell(merged.path, "bold"))
    lines = [sentence(Text("✓ ", style=OK), cell(door.name, "bold"), " is in ", cell(merged.path, "bold"))]
    if merged.backup:
        lines.append(sentence(Text("  the file before: ", style=DIM), cell(merged.backup, DIM)))
    note = _key_note(door)
    return Group(*lines, *([note] if note else []), Text(f"  now {program.after}", style=DIM))


def _document(program: Program, door: Door) -> Text:
    return verbatim(encode_json(program.document(door), indent=2))


def _key_note(door: Door) -> Text | None:
    if not door.needs_key:
        return None
    return Text(f"the client needs the key in its environment, as {KEY_VARIABLE}", style=WARN)
