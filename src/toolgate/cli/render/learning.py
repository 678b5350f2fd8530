"""Lessons: what a task used and what it did not; and grants nobody uses."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_plan

JsonObject = Mapping[str, Any]


def render_lesson(answer: JsonObject, command: Sequence[str] | None) -> RenderableType:
    """What stays and what goes, what that saves, and by which `command` it is made so; None: it is."""
    return ui.stack_parts(
        ui.sentence(
            "task ",
            ui.bold(answer["task_id"]),
            f": {ui.count_of(answer['calls'], 'call')} since {_day(answer['since_ms'])}",
        ),
        _render_kept(answer["kept"]),
        _render_removed(answer["removed"], begins_ms=answer["audit_begins_ms"]),
        Text(f"{answer['tokens_saved']:,} tokens less in each list") if answer["tokens_saved"] else None,
        ui.render_warnings(answer["warnings"]),
        Text("Calls of other tasks, and of callers without one, are not counted.", style=ui.DIM),
        _plan(answer["plan"], command),
    )


def _plan(plan: JsonObject, command: Sequence[str] | None) -> RenderableType | None:
    if not plan["changes"]:
        return Text("the task has nothing to lose: it is the least already", style=ui.OK)
    return None if command is None else render_plan(plan, command)


def _render_kept(kept: Sequence[JsonObject]) -> RenderableType:
    title = Text(f"{len(kept):,} used, and kept", style=f"bold {ui.OK if kept else ui.WARN}")
    if not kept:
        return title
    table = ui.grid("NAME*", "CALLS", "LAST USED", "")
    table.columns[1].justify = "right"
    for one in kept:
        note = Text("would be denied", style=ui.WARN) if one["is_anew"] else Text("")
        table.add_row(_name(one), ui.cell(f"{one['calls']:,}"), ui.cell(_day(one["last_used_ms"])), note)
    return Group(title, table)


def _render_removed(removed: Sequence[JsonObject], *, begins_ms: int | None) -> RenderableType | None:
    if not removed:
        return None
    parts = [Text(f"{len(removed):,} not used, and removed", style=f"bold {ui.BAD}"), _unused_tools(removed)]
    if begins_ms is not None:
        parts.append(Text(f"never: since {_day(begins_ms)}, when the audit begins", ui.DIM))
    return Group(*parts)


def _unused_tools(tools: Sequence[JsonObject]) -> RenderableType:
    table = ui.grid("NAME*", "TOKENS", "LAST USED")
    table.columns[1].justify = "right"
    for one in tools:
        table.add_row(_name(one), ui.cell(f"{one['tokens']:,}"), _render_last_use(one["last_used_ms"]))
    return table


def render_unused(answer: JsonObject, *, is_one: bool) -> RenderableType:
    """A line for each task and key, or, of one, for each of its tools; then servers nobody uses."""
    foot = Text(f"not used since {_day(answer['since_ms'])}", style=ui.DIM)
    holders = answer["holders"]
    parts = [_one_holder(one) for one in holders] if is_one else [_holders(holders)]
    return ui.stack_parts(*parts, _servers(answer["servers"]), ui.render_warnings(answer["warnings"]), foot)


def _holders(holders: Sequence[JsonObject]) -> RenderableType:
    if not holders:
        return Text("there is no task and no key")
    table = ui.grid("WHO*", "CALLS", "GRANTED", "UNUSED", "TOKENS", "LAST USED")
    for column in table.columns[1:5]:
        column.justify = "right"
    for one in holders:
        table.add_row(
            ui.sentence(f"{one['kind']} ", ui.bold(one["id"])),
            ui.cell(f"{one['calls']:,}"),
            ui.cell(f"{one['granted']:,}"),
            ui.cell(f"{one['unused']:,}", ui.WARN if one["unused"] else ui.OK),
            ui.cell(f"{one['unused_tokens']:,}"),
            _render_last_use(one["last_used_ms"]),
        )
    return table


def _one_holder(holder: JsonObject) -> RenderableType:
    head = ui.sentence(
        f"{holder['kind']} ",
        ui.bold(holder["id"]),
        f": {holder['unused']:,} of {ui.count_of(holder['granted'], 'tool')} not used,",
        f" {holder['unused_tokens']:,} tokens in each list",
    )
    return ui.stack_parts(head, _unused_tools(holder["tools"]) if holder["tools"] else None)


def _servers(servers: Sequence[JsonObject]) -> RenderableType | None:
    if not servers:
        return None
    table = ui.grid("SERVER NOBODY USES*", "LAST USED")
    for one in servers:
        table.add_row(ui.bold(one["server_id"]), _render_last_use(one["last_used_ms"]))
    return table


def _name(one: JsonObject) -> Text:
    return ui.sentence(ui.cell(one["server_id"], ui.DIM), Text("/", style=ui.DIM), ui.bold(one["tool"]))


def _render_last_use(at_ms: int | None) -> Text:
    return Text("never", style=ui.WARN) if at_ms is None else ui.cell(_day(at_ms))


def _day(at_ms: int) -> str:
    return ui.render_time(at_ms, ui.DAY_FORMAT)
