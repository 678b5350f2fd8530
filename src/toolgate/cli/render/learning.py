"""Lessons: what a task used and what it did not; and grants nobody uses."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, count, grid, sentence, stack, warnings
from toolgate.cli.render.moments import DAY, moment
from toolgate.cli.render.plans import render_plan

Answer = Mapping[str, Any]


def render_lesson(answer: Answer, command: Sequence[str] | None) -> RenderableType:
    """What stays and what goes, what that saves, and by which `command` it is made so; None: it is."""
    return stack(
        sentence(
            "task ",
            cell(answer["task_id"], "bold"),
            f": {count(answer['calls'], 'call')} since {_day(answer['since_ms'])}",
        ),
        _kept(answer["kept"]),
        _removed(answer["removed"], begins_ms=answer["audit_begins_ms"]),
        Text(f"{answer['tokens_saved']:,} tokens less in each list") if answer["tokens_saved"] else None,
        warnings(answer["warnings"]),
        Text("Calls of other tasks, and of callers without one, are not counted.", style=DIM),
        _plan(answer["plan"], command),
    )


def _plan(plan: Answer, command: Sequence[str] | None) -> RenderableType | None:
    if not plan["changes"]:
        return Text("the task has nothing to lose: it is the least already", style=OK)
    return None if command is None else render_plan(plan, command)


def _kept(kept: Sequence[Answer]) -> RenderableType:
    title = Text(f"{len(kept):,} used, and kept", style=f"bold {OK if kept else WARN}")
    if not kept:
        return title
    table = grid("NAME", "CALLS", "LAST USED", "", flexible={"NAME"})
    table.columns[1].justify = "right"
    for one in kept:
        note = Text("would be denied", style=WARN) if one["is_anew"] else Text("")
        table.add_row(_name(one), cell(f"{one['calls']:,}"), cell(_day(one["last_used_ms"])), note)
    return Group(title, table)


def _removed(removed: Sequence[Answer], *, begins_ms: int | None) -> RenderableType | None:
    if not removed:
        return None
    parts = [Text(f"{len(removed):,} not used, and removed", style=f"bold {BAD}"), _unused_tools(removed)]
    if begins_ms is not None:
        parts.append(Text(f"never: since {_day(begins_ms)}, when the audit begins", DIM))
    return Group(*parts)


def _unused_tools(tools: Sequence[Answer]) -> RenderableType:
    table = grid("NAME", "TOKENS", "LAST USED", flexible={"NAME"})
    table.columns[1].justify = "right"
    for one in tools:
        table.add_row(_name(one), cell(f"{one['tokens']:,}"), _last(one["last_used_ms"]))
    return table


def render_unused(answer: Answer, *, is_one: bool) -> RenderableType:
    """A line for each task and key, or, of one, for each of its tools; then servers nobody uses."""
    foot = Text(f"not used since {_day(answer['since_ms'])}", style=DIM)
    holders = answer["holders"]
    parts = [_one_holder(one) for one in holders] if is_one else [_holders(holders)]
    return stack(*parts, _servers(answer["servers"]), warnings(answer["warnings"]), foot)


def _holders(holders: Sequence[Answer]) -> RenderableType:
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
            _last(one["last_used_ms"]),
        )
    return table


def _one_holder(holder: Answer) -> RenderableType:
    head = sentence(
        f"{holder['kind']} ",
        cell(holder["id"], "bold"),
        f": {holder['unused']:,} of {count(holder['granted'], 'tool')} not used,",
        f" {holder['unused_tokens']:,} tokens in each list",
    )
    return stack(head, _unused_tools(holder["tools"]) if holder["tools"] else None)


def _servers(servers: Sequence[Answer]) -> RenderableType | None:
    if not servers:
        return None
    table = grid("SERVER NOBODY USES", "LAST USED", flexible={"SERVER NOBODY USES"})
    for one in servers:
        table.add_row(cell(one["server_id"], "bold"), _last(one["last_used_ms"]))
    return table


def _name(one: Answer) -> Text:
    return sentence(cell(one["server_id"], DIM), Text("/", style=DIM), cell(one["tool"], "bold"))


def _last(at_ms: int | None) -> Text:
    return Text("never", style=WARN) if at_ms is None else cell(_day(at_ms))


def _day(at_ms: int) -> str:
    return moment(at_ms, DAY)
