"""Changes, made or only looked at: plans, reloads, and rules that match nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count,
    grid,
    indent,
    sentence,
    stack,
    warnings,
)

Answer = Mapping[str, Any]


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
    table = grid("WHERE", "RULE", "FINDING", flexible="FINDING")
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
    lines = [
        *_problems(change),
        *_signed(added, removed),
        *_signed(
            _rest(change, "reach_added", added), _rest(change, "reach_removed", removed), note="on request"
        ),
    ]
    return Group(title, *map(indent, lines))


def _problems(change: Answer) -> Iterable[Text]:
    if change.get("problem"):
        yield sentence(Text("cannot be read: ", style=BAD), cell(change["problem"]))
    if change.get("refusal"):
        yield sentence(Text("refused: ", style=WARN), cell(change["refusal"]["message"]))


def _signed(added: Iterable[str], removed: Iterable[str], note: str = "") -> Iterable[Text]:
    tail = f"  ({note})" if note else ""
    for sign, style, tools in (("+", OK, added), ("-", BAD, removed)):
        for name in tools:
            yield sentence(cell(f"{sign} {name}", style), Text(tail, style=DIM))


def _rest(change: Answer, field: str, shown: Sequence[str]) -> list[str]:
    """What a request can get by naming servers, beyond what everybody gets."""
    return [name for name in change.get(field) or () if name not in shown]
