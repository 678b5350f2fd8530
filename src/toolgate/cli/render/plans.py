"""Changes of whole records, made or only looked at, and what they do to each task. Signs as in a diff."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from toolgate.cli.escape import encode_json
from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count,
    facts,
    indent,
    names,
    sentence,
    stack,
    verbatim,
    warnings,
)
from toolgate.model.revisions import spoken

Answer = Mapping[str, Any]

SIGNS: Final = {"added": ("+", OK), "changed": ("~", WARN), "removed": ("-", BAD)}
ABSENT: Final = "(default)"
"""What stands for a value in an answer where a record says nothing."""


def render_change_set(answer: Answer) -> RenderableType:
    """Changes that were made as one."""
    changes: Sequence[Answer] = answer["changes"]
    if not changes:
        head = sentence(Text("✓ ", style=OK), f"nothing to do (revision {answer['revision']})")
        return stack(head, warnings(answer["warnings"]))
    tail = sentence(Text("✓ ", style=OK), _totals(changes), f" (revision {answer['revision']})")
    return stack(_records(changes), warnings(answer["warnings"]), tail)


def render_imported(answer: Answer, *, is_dry_run: bool) -> RenderableType:
    """Servers of another program's file, and those of them that could not be taken over."""
    shown = render_difference(answer) if is_dry_run else render_change_set(answer)
    skipped = [
        sentence(Text("skipped ", style=WARN), cell(one["name"], "bold"), ": ", cell(one["reason"]))
        for one in answer["skipped"]
    ]
    plan = sentence("plan ", cell(answer["plan"], "bold")) if answer["plan"] else None
    return stack(Group(*skipped) if skipped else None, shown, plan)


def render_difference(answer: Answer) -> RenderableType:
    """Changes that were not made."""
    changes: Sequence[Answer] = answer["changes"]
    if not changes:
        return Text("no difference")
    tail = Text(f"{_totals(changes)}; nothing was written", style=DIM)
    return stack(_records(changes), warnings(answer["warnings"]), tail)


def render_records(answer: Answer, command: Sequence[str]) -> RenderableType:
    """The records of a plan, each with the fields that change in it, and what each task would notice."""
    if not answer["changes"]:
        return Text("no difference: there is nothing to do")
    return stack(_records(answer["changes"]), *_effect(answer), _apply_hint(answer["id"], command))


def render_plan(answer: Answer, command: Sequence[str] | None) -> RenderableType:
    """What changes would add to and take from each task, and how to make exactly them: by which command."""
    changes: Sequence[Answer] = answer["changes"]
    if not changes:
        return Text("no difference: there is nothing to apply")
    return stack(Group(*map(_headline, changes)), *_effect(answer), _apply_hint(answer["id"], command))


def _effect(answer: Answer) -> Iterator[RenderableType | None]:
    """What each task would notice."""
    tasks = [_task_change(one) for one in answer["tasks"]]
    yield from tasks or [Text("no task would see a difference")]
    yield _unlisted(answer["unlisted"])
    yield warnings(answer["warnings"])
    yield Text(f"{count(answer['unchanged'], 'task')} unchanged; nothing was written", style=DIM)


def _unlisted(server_ids: Sequence[str]) -> RenderableType | None:
    if not server_ids:
        return None
    return sentence("not shown: the tools of ", cell(", ".join(server_ids)), ", never listed yet")


def render_removals(changes: Sequence[Answer]) -> RenderableType:
    """What is about to be removed."""
    return Group(*map(_headline, changes))


def render_fields(fields: Sequence[Answer]) -> RenderableType:
    """Fields with their values before and after."""
    return Group(*(part for one in fields for part in (cell(one["field"]), indent(_values(one)))))


def _values(field: Answer) -> RenderableType:
    table = facts(2)
    for sign, style, value in (("-", BAD, field["before"]), ("+", OK, field["after"])):
        if value != ABSENT:
            table.add_row(Text(sign, style=style), cell(_value(value), style))
    return table


def _records(changes: Sequence[Answer]) -> RenderableType:
    lines: list[RenderableType] = []
    for change in changes:
        lines.append(_headline(change))
        if change["operation"] == "changed":
            lines.append(indent(indent(render_fields(change["fields"]))))
    return Group(*lines)


def _headline(change: Answer) -> Text:
    sign, style = SIGNS[change["operation"]]
    return sentence(Text(f"{sign} ", style=style), f"{spoken(change['kind'])} ", cell(change["id"], "bold"))


def _totals(changes: Sequence[Answer]) -> str:
    found = {word: sum(one["operation"] == word for one in changes) for word in SIGNS}
    return ", ".join(f"{number:,} {word}" for word, number in found.items() if number)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value)


def _apply_hint(plan_id: str, command: Sequence[str] | None) -> RenderableType:
    if command is None:
        return sentence("plan ", cell(plan_id, "bold"))
    line = shlex.join(["toolgate", *command, "--require-plan", plan_id])
    return Group(Text("To make exactly this change:", style="bold"), verbatim(line))


def _task_change(change: Answer) -> RenderableType:
    added: Sequence[str] = change["added"]
    removed: Sequence[str] = change["removed"]
    task_id = change["task_id"]
    title = sentence(
        "task " if task_id else "",
        cell(task_id or "without a task", "bold"),
        Text("" if change.get("share", 100) == 100 else f"  {change['share']:g} % of callers", style=WARN),
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
