"""Changes, made or only looked at: writes, plans, reloads, and rules that match nothing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count,
    facts,
    grid,
    indent,
    names,
    sentence,
    stack,
    warnings,
)

Answer = Mapping[str, Any]


def render_applied(kind: str, record_id: str, answer: Answer) -> RenderableType:
    """A write that was acknowledged, at its revision."""
    return _done(kind, record_id, f" (revision {answer['revision']})", answer)


def render_deleted(kind: str, record_id: str, answer: Answer) -> RenderableType:
    """A removal that was acknowledged, and what refers to nothing from now on."""
    return _done(kind, record_id, " is gone", answer)


def render_plan(answer: Answer) -> RenderableType:
    """What a change would add to and take from each task. Nothing has been changed."""
    changes = [_task_change(one) for one in answer["tasks"]]
    head = None if changes else Text("no task would see a difference")
    tail = Text(f"{count(answer['unchanged'], 'task')} unchanged; nothing was written", style=DIM)
    return stack(head, *changes, tail)


def render_lint(findings: Sequence[Answer]) -> RenderableType:
    """Rules that do not do what their author meant."""
    if not findings:
        return Text("✓ every rule matches something", style=OK)
    table = grid("WHERE", "RULE", "FINDING", flexible={"FINDING"})
    for one in findings:
        table.add_row(cell(one["where"], "bold"), cell(one["rule"]), cell(one["message"]))
    return table


def render_reload(answer: Answer, *, is_dry_run: bool) -> RenderableType:
    """What a directory of records changed, or would."""
    applied: Sequence[str] = answer["applied"]
    problems: Sequence[str] = answer["problems"]
    head = Text(f"{count(len(applied), 'change')}{' planned' if is_dry_run else ''}", style="bold")
    wrong = [sentence(Text("problem: ", style=BAD), cell(one)) for one in problems]
    return stack(
        Group(head, *(indent(cell(one)) for one in applied)),
        warnings(answer["warnings"]),
        Group(*wrong) if wrong else None,
    )


def _done(kind: str, record_id: str, what: str, answer: Answer) -> RenderableType:
    head = sentence(Text("✓ ", style=OK), f"{kind} ", cell(record_id, "bold"), what)
    return Group(head, *filter(None, [warnings(answer["warnings"])]))


def _task_change(change: Answer) -> RenderableType:
    added: Sequence[str] = change["added"]
    removed: Sequence[str] = change["removed"]
    task_id = change["task_id"]
    title = sentence(
        "task " if task_id else "",
        cell(task_id or "without a task", "bold"),
        Text(f"  +{len(added)}", style=OK if added else DIM),
        Text(f"  -{len(removed)}", style=BAD if removed else DIM),
    )
    lines = facts(3)
    _add_lines(lines, added, removed)
    # Beyond what everybody gets: only those who name the server.
    _add_lines(
        lines,
        [tool for tool in change["reach_added"] if tool not in added],
        [tool for tool in change["reach_removed"] if tool not in removed],
        note=" (on request)",
    )
    return Group(title, *map(indent, _problems(change)), indent(lines))


def _problems(change: Answer) -> Iterator[Text]:
    if change["problem"]:
        yield sentence(Text("cannot be read: ", style=BAD), cell(change["problem"]))
    if change["refusal"]:
        yield sentence(Text("refused: ", style=WARN), cell(change["refusal"]["message"]))


def _add_lines(table: Table, added: Sequence[str], removed: Sequence[str], note: str = "") -> None:
    """A line a server: sign, server, its tools."""
    for sign, style, tools in (("+", OK, added), ("-", BAD, removed)):
        for server_id, group in groupby(tools, key=lambda tool: tool.partition("/")[0]):
            shown = names(tool.partition("/")[2] for tool in group)
            table.add_row(
                Text(sign, style=style), cell(server_id, style), sentence(shown, Text(note, style=DIM))
            )
