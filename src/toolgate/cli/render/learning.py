"""Lessons: what a task used and what it did not; and grants nobody uses."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.changes import render_plan
from toolgate.cli.render.layout import (
    BAD,
    DAY_FORMAT,
    DIM,
    OK,
    WARN,
    cell,
    count_of,
    grid,
    render_time,
    render_warnings,
    sentence,
    stack_parts,
)

JsonObject = Mapping[str, Any]


def render_lesson(answer: JsonObject, command: Sequence[str] | None) -> RenderableType:
    """What stays and what goes, what that saves, and by which `command` it is made so; None: it is."""
    return stack_parts(
        sentence(
            "task ",
            cell(answer["task_id"], "bold"),
            f": {count_of(answer['calls'], 'call')} since {_day(answer['since_ms'])}",
        ),
        _render_kept(answer["kept"]),
        _render_removed(answer["removed"], begins_ms=answer["audit_begins_ms"]),
        Text(f"{answer['tokens_saved']:,} tokens less in each list") if answer["tokens_saved"] else None,
        render_warnings(answer["warnings"]),
        Text("Calls of other tasks, and of callers without one, are not counted.", style=DIM),
        _plan(answer["plan"], command),
    )


def _plan(plan: JsonObject, command: Sequence[str] | None) -> RenderableType | None:
    if not plan["changes"]:
        return Text("the task has nothing to lose: it is the least already", style=OK)
    return None if command is None else render_plan(plan, command)


def _render_kept(kept: Sequence[JsonObject]) -> RenderableType:
    title = Text(f"{len(kept):,} used, and kept", style=f"bold {OK if kept else WARN}")
    if not kept:
        return title
    table = grid("NAME", "CALLS", "LAST USED", "", flexible={"NAME"})
    table.columns[1].justify = "right"
    for one in kept:
        note = Text("would be denied", style=WARN) if one["is_anew"] else Text("")
        table.add_row(_name(one), cell(f"{one['calls']:,}"), cell(_day(one["last_used_ms"])), note)
    return Group(title, table)


def _render_removed(removed: Sequence[JsonObject], *, begins_ms: int | None) -> RenderableType | None:
    if not removed:
        return None
    parts = [Text(f"{len(removed):,} not used, and removed", style=f"bold {BAD}"), _unused_tools(removed)]
    if begins_ms is not None:
        parts.append(Text(f"never: since {_day(begins_ms)}, when the audit begins", DIM))
    return Group(*parts)


def _unused_tools(tools: Sequence[JsonObject]) -> RenderableType:
    table = grid("NAME", "TOKENS", "LAST USED", flexible={"NAME"})
    table.columns[1].justify = "right"
    for one in tools:
        table.add_row(_name(one), cell(f"{one['tokens']:,}"), _render_last_use(one["last_used_ms"]))
    return table


def render_unused(answer: JsonObject, *, is_one: bool) -> RenderableType:
    """A line for each task and key, or, of one, for each of its tools; then servers nobody uses."""
    foot = Text(f"not used since {_day(answer['since_ms'])}", style=DIM)
    holders = answer["holders"]
    parts = [_one_holder(one) for one in holders] if is_one else [_holders(holders)]
    return stack_parts(*parts, _servers(answer["servers"]), render_warnings(answer["warnings"]), foot)


def _holders(holders: Sequence[JsonObject]) -> RenderableType:
    if not holders:
        return Text("there is no task and no key")
    table = grid("WHO", "CALLS", "GRANTED", "UNUSED", "TOKENS", "LAST USED", flexible={"WHO"})
    for column in table.columns[1:5]:
        column.justify = "right"
    for one in holders:
        table.add_row(
            sentence(f"{one['kind']} ", cell(one["id"], "bold")),
            cell(f"{one['calls']:,}"),
            cell(f"{one['granted']:,}"),
            cell(f"{one['unused']:,}", WARN if one["unused"] else OK),
            cell(f"{one['unused_tokens']:,}"),
            _render_last_use(one["last_used_ms"]),
        )
    return table


def _one_holder(holder: JsonObject) -> RenderableType:
    head = sentence(
        f"{holder['kind']} ",
        cell(holder["id"], "bold"),
        f": {holder['unused']:,} of {count_of(holder['granted'], 'tool')} not used,",
        f" {holder['unused_tokens']:,} tokens in each list",
    )
    return stack_parts(head, _unused_tools(holder["tools"]) if holder["tools"] else None)


def _servers(servers: Sequence[JsonObject]) -> RenderableType | None:
    if not servers:
        return None
    table = grid("SERVER NOBODY USES", "LAST USED", flexible={"SERVER NOBODY USES"})
    for one in servers:
        table.add_row(cell(one["server_id"], "bold"), _render_last_use(one["last_used_ms"]))
    return table


def _name(one: JsonObject) -> Text:
    return sentence(cell(one["server_id"], DIM), Text("/", style=DIM), cell(one["tool"], "bold"))


def _render_last_use(at_ms: int | None) -> Text:
    return Text("never", style=WARN) if at_ms is None else cell(_day(at_ms))


def _day(at_ms: int) -> str:
    return render_time(at_ms, DAY_FORMAT)
