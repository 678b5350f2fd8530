"""Changes of records, made or planned; their history; copies of the registry. Signs as in a diff."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.model.revisions import Kind, describe_kind

SIGNS: Final = {"added": ("+", ui.OK), "changed": ("~", ui.WARN), "removed": ("-", ui.BAD)}
ABSENT: Final = "(default)"
"""The value in an answer for a field that a record leaves out."""


def render_change_set(answer: JsonObject) -> RenderableType:
    """Changes that were made as one."""
    changes: Sequence[JsonObject] = answer["changes"]
    if not changes:
        head = ui.done(f"nothing to do (revision {answer['revision']})")
        return ui.stack_parts(head, ui.render_warnings(answer["warnings"]))
    tail = ui.done(_count_operations(changes), f" (revision {answer['revision']})")
    return ui.stack_parts(_render_records(changes), ui.render_warnings(answer["warnings"]), tail)


def render_imported(answer: JsonObject, *, is_dry_run: bool) -> RenderableType:
    """Servers of another program's file, and those of them that could not be taken over."""
    shown = render_difference(answer) if is_dry_run else render_change_set(answer)
    skipped = [
        ui.sentence(Text("skipped ", style=ui.WARN), ui.bold(one["name"]), ": ", ui.cell(one["reason"]))
        for one in answer["skipped"]
    ]
    plan = ui.sentence("plan ", ui.bold(answer["plan"])) if answer["plan"] else None
    return ui.stack_parts(Group(*skipped) if skipped else None, shown, plan)


def render_difference(answer: JsonObject) -> RenderableType:
    """Changes that were not made."""
    changes: Sequence[JsonObject] = answer["changes"]
    if not changes:
        return Text("no difference")
    tail = Text(f"{_count_operations(changes)}; nothing was written", style=ui.DIM)
    return ui.stack_parts(_render_records(changes), ui.render_warnings(answer["warnings"]), tail)


def render_records(answer: JsonObject, command: Sequence[str]) -> RenderableType:
    """The records of a plan, each with the fields that change in it, and what each task would notice."""
    if not answer["changes"]:
        return Text("no difference: there is nothing to do")
    return ui.stack_parts(
        _render_records(answer["changes"]), *_render_effect(answer), _apply_hint(answer["id"], command)
    )


def render_plan(answer: JsonObject, command: Sequence[str] | None) -> RenderableType:
    """What changes would add to and take from each task, and how to make exactly them: by which command."""
    changes: Sequence[JsonObject] = answer["changes"]
    if not changes:
        return Text("no difference: there is nothing to apply")
    return ui.stack_parts(
        Group(*map(_render_headline, changes)), *_render_effect(answer), _apply_hint(answer["id"], command)
    )


def _render_effect(answer: JsonObject) -> Iterator[RenderableType | None]:
    """What each task would notice."""
    tasks = [_render_task_change(one) for one in answer["tasks"]]
    yield from tasks or [Text("no task would see a difference")]
    yield _unlisted(answer["unlisted"])
    yield ui.render_warnings(answer["warnings"])
    yield Text(f"{ui.count_of(answer['unchanged'], 'task')} unchanged; nothing was written", style=ui.DIM)


def _unlisted(server_ids: Sequence[str]) -> RenderableType | None:
    if not server_ids:
        return None
    return ui.sentence("not shown: the tools of ", ui.cell(", ".join(server_ids)), ", never listed yet")


def render_removals(changes: Sequence[JsonObject]) -> RenderableType:
    """What is about to be removed."""
    return Group(*map(_render_headline, changes))


def render_fields(fields: Sequence[JsonObject]) -> RenderableType:
    """Fields with their values before and after."""
    return Group(*(part for one in fields for part in (ui.cell(one["field"]), ui.indent(_values(one)))))


def _values(field: JsonObject) -> RenderableType:
    table = ui.unheaded_grid(2)
    for sign, style, value in (("-", ui.BAD, field["before"]), ("+", ui.OK, field["after"])):
        if value != ABSENT:
            table.add_row(Text(sign, style=style), ui.cell(_value(value), style))
    return table


def _render_records(changes: Sequence[JsonObject]) -> RenderableType:
    lines: list[RenderableType] = []
    for change in changes:
        lines.append(_render_headline(change))
        if change["operation"] == "changed":
            lines.append(ui.indent(ui.indent(render_fields(change["fields"]))))
    return Group(*lines)


def _render_headline(change: JsonObject) -> Text:
    sign, style = SIGNS[change["operation"]]
    return ui.sentence(
        Text(f"{sign} ", style=style), f"{describe_kind(change['kind'])} ", ui.bold(change["id"])
    )


def _count_operations(changes: Sequence[JsonObject]) -> str:
    found = {word: sum(one["operation"] == word for one in changes) for word in SIGNS}
    return ", ".join(f"{number:,} {word}" for word, number in found.items() if number)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else ui.encode_json(value)


def _apply_hint(plan_id: str, command: Sequence[str] | None) -> RenderableType:
    if command is None:
        return ui.sentence("plan ", ui.bold(plan_id))
    line = shlex.join(["toolgate", *command, "--require-plan", plan_id])
    return Group(Text("To make exactly this change:", style="bold"), ui.copyable(line))


def _render_task_change(change: JsonObject) -> RenderableType:
    added: Sequence[str] = change["added"]
    removed: Sequence[str] = change["removed"]
    task_id = change["task_id"]
    title = ui.sentence(
        "task " if task_id else "",
        ui.bold(task_id or "without a task"),
        Text("" if change.get("share", 100) == 100 else f"  {change['share']:g} % of callers", style=ui.WARN),
        Text(f"  +{len(added)}", style=ui.OK if added else ui.DIM),
        Text(f"  -{len(removed)}", style=ui.BAD if removed else ui.DIM),
    )
    lines = ui.unheaded_grid(3)
    _add_lines(lines, added, removed)
    # Beyond what every caller gets: only for callers that name the server.
    _add_lines(
        lines,
        [tool for tool in change["reach_added"] if tool not in added],
        [tool for tool in change["reach_removed"] if tool not in removed],
        note=" (on request)",
    )
    return Group(title, *map(ui.indent, _render_problems(change)), ui.indent(lines))


def _render_problems(change: JsonObject) -> Iterator[Text]:
    if change["problem"]:
        yield ui.sentence(Text("cannot be read: ", style=ui.BAD), ui.cell(change["problem"]))
    if change["refusal"]:
        yield ui.sentence(Text("refused: ", style=ui.WARN), ui.cell(change["refusal"]["message"]))


def _add_lines(table: Table, added: Sequence[str], removed: Sequence[str], note: str = "") -> None:
    """A line a server: sign, server, its tools."""
    for sign, style, tools in (("+", ui.OK, added), ("-", ui.BAD, removed)):
        for server_id, group in groupby(tools, key=lambda tool: tool.partition("/")[0]):
            shown = ui.join_names(tool.partition("/")[2] for tool in group)
            table.add_row(
                Text(sign, style=style),
                ui.cell(server_id, style),
                ui.sentence(shown, Text(note, style=ui.DIM)),
            )


def render_history(entries: Sequence[JsonObject]) -> RenderableType:
    """A line a change: which fields it touched. `diff` shows their values."""
    if not entries:
        return Text("the change log no longer reaches back to any change of it")
    table = ui.grid(">REVISION", "WHEN (UTC)", "BY", "FIELDS*")
    for one in entries:
        table.add_row(
            ui.bold(one["revision"]),
            ui.cell(ui.render_time(one["at_ms"])),
            ui.cell(one["actor"]),
            _render_touched(one),
        )
    return table


def render_field_diff(answer: JsonObject) -> RenderableType:
    """Fields before and after."""
    return render_fields(answer["fields"]) if answer["fields"] else Text("no difference")


def _render_touched(entry: JsonObject) -> Text:
    if entry["operation"] == "delete":
        return ui.cell("deleted", ui.BAD)
    return (
        ui.join_names(one["field"] for one in entry["fields"]) if entry["fields"] else ui.cell("none", ui.DIM)
    )


def render_backup(answer: JsonObject) -> RenderableType:
    """A copy that was written."""
    # A line of its own, to be copied whole.
    path = Text(f"  {ui.escape_line(str(answer['path']))}", style="bold", no_wrap=True, overflow="ignore")
    return Group(ui.done(f"{_describe_contents(answer)}, in"), path)


def render_import(answer: JsonObject) -> RenderableType:
    """A copy that was read."""
    return ui.sentence(
        Text("✓ ", style=ui.OK), f"imported {_describe_contents(answer)}; nodes will list everything again"
    )


def _describe_contents(answer: JsonObject) -> str:
    return f"{ui.count_of(answer['records'], 'record')} at revision {answer['revision']:,}"


def render_change(event: JsonObject) -> RenderableType:
    """One transaction: what was written and what was removed."""
    parts = [
        *_render_written("+", ui.OK, event.get("upserts", ())),
        *_render_written("-", ui.BAD, event.get("deletes", ())),
    ]
    return ui.sentence(ui.bold(event.get("revision")), "  ", Text(", ").join(parts))


def _render_written(sign: str, style: str, records: Sequence[JsonObject]) -> list[Text]:
    return [
        ui.sentence(Text(sign, style=style), f" {describe_kind(one['kind'])} ", ui.bold(one["id"]))
        for one in records
    ]


def render_applied(kind: Kind, record_id: str, answer: JsonObject) -> RenderableType:
    """A write that was acknowledged, at its revision."""
    return _render_done(kind, record_id, f" (revision {answer['revision']})", answer)


def render_deleted(kind: Kind, record_id: str, answer: JsonObject) -> RenderableType:
    """A removal that was acknowledged, and what refers to nothing from now on."""
    return _render_done(kind, record_id, " is gone", answer)


def render_rolled_back(kind: Kind, record_id: str, to: int, answer: JsonObject) -> RenderableType:
    """A record that is again what it was; what it was may be nothing."""
    return _render_done(kind, record_id, f" is as it was at {to:,} (revision {answer['revision']})", answer)


def render_lint(findings: Sequence[JsonObject], unjudged: Sequence[JsonObject] = ()) -> RenderableType:
    """Rules that do not do what their author meant, and those that could not be judged."""
    if not findings and not unjudged:
        return Text("✓ every rule matches something", style=ui.OK)
    return ui.stack_parts(
        _finding_table("FINDING", findings) if findings else None,
        Text(f"{ui.count_of(len(unjudged), 'rule')} could not be judged", style=ui.BAD) if unjudged else None,
        _finding_table("WHY", unjudged) if unjudged else None,
    )


def _finding_table(heading: str, findings: Sequence[JsonObject]) -> RenderableType:
    table = ui.grid("WHERE", "RULE", f"{heading}*")
    for one in findings:
        table.add_row(ui.bold(one["where"]), ui.cell(one["rule"]), ui.cell(one["message"]))
    return table


def render_reload(answer: JsonObject, *, is_dry_run: bool) -> RenderableType:
    """What a directory of records changed, or would."""
    applied: Sequence[str] = answer["applied"]
    problems: Sequence[str] = answer["problems"]
    head = Text(f"{ui.count_of(len(applied), 'change')}{' planned' if is_dry_run else ''}", style="bold")
    wrong = [ui.sentence(Text("problem: ", style=ui.BAD), ui.cell(one)) for one in problems]
    return ui.stack_parts(
        Group(head, *(ui.indent(ui.cell(one)) for one in applied)),
        ui.render_warnings(answer["warnings"]),
        Group(*wrong) if wrong else None,
    )


def _render_done(kind: Kind, record_id: str, what: str, answer: JsonObject) -> RenderableType:
    head = ui.done(f"{describe_kind(kind)} ", ui.bold(record_id), what)
    return Group(head, *filter(None, [ui.render_warnings(answer["warnings"])]))
