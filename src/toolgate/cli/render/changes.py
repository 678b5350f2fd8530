"""Changes of records, made or planned; history; pins; copies of the registry. Signs are those of a diff."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.model.revisions import Kind, describe_kind

SIGNS: Final = {"added": ("+", ui.OK), "changed": ("~", ui.WARN), "removed": ("-", ui.BAD)}
ABSENT: Final = "(default)"
"""The value in a response of a field that the record does not set."""


def render_change_set(response: JsonObject) -> RenderableType:
    changes: Sequence[JsonObject] = response["changes"]
    warnings, at = ui.render_warnings(response["warnings"]), f" (revision {response['revision']})"
    if not changes:
        return ui.stack_parts(ui.done(f"nothing to do{at}"), warnings)
    return ui.stack_parts(_render_records(changes), warnings, ui.done(_count_operations(changes), at))


def render_imported(response: JsonObject, *, is_dry_run: bool) -> RenderableType:
    """The imported servers of another program's file, and the skipped ones."""
    skipped = [
        ui.sentence(Text("skipped ", style=ui.WARN), ui.bold(one["name"]), ": ", ui.cell(one["reason"]))
        for one in response["skipped"]
    ]
    return ui.stack_parts(
        Group(*skipped) if skipped else None,
        render_difference(response) if is_dry_run else render_change_set(response),
        ui.sentence("plan ", ui.bold(response["plan"])) if response["plan"] else None,
    )


def render_difference(response: JsonObject) -> RenderableType:
    changes: Sequence[JsonObject] = response["changes"]
    if not changes:
        return Text("no difference")
    tail = Text(f"{_count_operations(changes)}; nothing was written", style=ui.DIM)
    return ui.stack_parts(_render_records(changes), ui.render_warnings(response["warnings"]), tail)


def render_plan(
    response: JsonObject, command: Sequence[str] | None, *, has_fields: bool = False
) -> RenderableType:
    """The effect of changes on each task, and the command that applies exactly them.

    With `has_fields` the changed fields of each record come first.
    """
    changes: Sequence[JsonObject] = response["changes"]
    if not changes:
        return Text("no difference")
    parts: list[RenderableType | None] = [
        _render_records(changes) if has_fields else render_removals(changes)
    ]
    parts += [_render_task_change(one) for one in response["tasks"]] or [Text("no effect on any task")]
    if response["unlisted"]:
        server_ids = ui.cell(", ".join(response["unlisted"]))
        parts.append(ui.sentence("not included: the tools of ", server_ids, ", which were never listed"))
    parts.append(ui.render_warnings(response["warnings"]))
    unchanged = ui.count_of(response["unchanged"], "task")
    parts.append(Text(f"{unchanged} unchanged; nothing was written", style=ui.DIM))
    if command is None:
        parts.append(ui.sentence("plan ", ui.bold(response["id"])))
    else:
        line = shlex.join(["toolgate", *command, "--require-plan", response["id"]])
        parts.append(ui.copyable(line, "To apply exactly this change:"))
    return ui.stack_parts(*parts)


def render_removals(changes: Sequence[JsonObject]) -> RenderableType:
    return Group(*map(_render_headline, changes))


def _render_fields(fields: Sequence[JsonObject]) -> RenderableType:
    parts: list[RenderableType] = []
    for one in fields:
        signed = (("-", ui.BAD, one["before"]), ("+", ui.OK, one["after"]))
        rows = (
            (
                Text(sign, style=style),
                ui.cell(value if isinstance(value, str) else ui.encode_json(value), style),
            )
            for sign, style, value in signed
            if value != ABSENT
        )
        parts += [ui.cell(one["field"]), ui.indent(ui.unheaded_grid(2, rows))]
    return Group(*parts)


def _render_records(changes: Sequence[JsonObject]) -> RenderableType:
    lines: list[RenderableType] = []
    for change in changes:
        lines.append(_render_headline(change))
        if change["operation"] == "changed":
            lines.append(ui.indent(ui.indent(_render_fields(change["fields"]))))
    return Group(*lines)


def _render_headline(change: JsonObject) -> Text:
    return _render_signed(*SIGNS[change["operation"]], change)


def _render_signed(sign: str, style: str, record: JsonObject) -> Text:
    kind = describe_kind(record["kind"])
    return ui.sentence(Text(sign, style=style), f" {kind} ", ui.bold(record["id"]))


def _count_operations(changes: Sequence[JsonObject]) -> str:
    found = {word: sum(one["operation"] == word for one in changes) for word in SIGNS}
    return ", ".join(f"{number:,} {word}" for word, number in found.items() if number)


def _render_task_change(change: JsonObject) -> RenderableType:
    added: Sequence[str] = change["added"]
    removed: Sequence[str] = change["removed"]
    task_id, problem, refusal = change["task_id"], change["problem"], change["refusal"]
    title = ui.sentence(
        "task " if task_id else "",
        ui.bold(task_id or "without a task"),
        Text("" if change.get("share", 100) == 100 else f"  {change['share']:g} % of callers", style=ui.WARN),
        Text(f"  +{len(added)}", style=ui.OK if added else ui.DIM),
        Text(f"  -{len(removed)}", style=ui.BAD if removed else ui.DIM),
    )
    # Tools of callers that name the server, beyond those of all callers.
    reached = [tool for tool in change["reach_added"] if tool not in added]
    lost = [tool for tool in change["reach_removed"] if tool not in removed]
    rows = [*_list_tools(added, removed, ""), *_list_tools(reached, lost, " (on request)")]
    wrong = [("invalid: ", ui.BAD, problem)] if problem else []
    wrong += [("refused: ", ui.WARN, refusal["message"])] if refusal else []
    lines = [ui.indent(ui.sentence(Text(what, style), ui.cell(why))) for what, style, why in wrong]
    return Group(title, *lines, ui.indent(ui.unheaded_grid(3, rows)))


def _list_tools(added: Sequence[str], removed: Sequence[str], note: str) -> Iterator[Sequence[Text]]:
    for sign, style, tools in (("+", ui.OK, added), ("-", ui.BAD, removed)):
        for server_id, group in groupby(tools, key=lambda tool: tool.partition("/")[0]):
            shown = ui.join_names(tool.partition("/")[2] for tool in group)
            line = ui.sentence(shown, Text(note, style=ui.DIM))
            yield Text(sign, style=style), ui.cell(server_id, style), line


def render_history(response: JsonObject) -> RenderableType:
    """One line per change with its fields. `diff` shows their values."""
    if not response["entries"]:
        return Text("the change log has no changes of this record")
    table = ui.grid(">REVISION", "WHEN (UTC)", "BY", "FIELDS*")
    for entry in response["entries"]:
        touched = ui.join_names(one["field"] for one in entry["fields"]) or ui.cell("none", ui.DIM)
        if entry["operation"] == "delete":
            touched = ui.cell("deleted", ui.BAD)
        table.add_row(ui.bold(entry["revision"]), ui.render_time(entry["at_ms"]), entry["actor"], touched)
    return table


def render_field_diff(response: JsonObject) -> RenderableType:
    return _render_fields(response["fields"]) if response["fields"] else Text("no difference")


def render_backup(response: JsonObject) -> RenderableType:
    # On a separate line, to be copied.
    path = ui.unwrapped(f"  {ui.escape_line(str(response['path']))}", "bold")
    return Group(ui.done(f"{_describe_contents(response)}, in"), path)


def render_restored(response: JsonObject) -> RenderableType:
    return ui.done(f"restored {_describe_contents(response)}; nodes will list everything again")


def _describe_contents(response: JsonObject) -> str:
    return f"{ui.count_of(response['records'], 'record')} at revision {response['revision']:,}"


def render_change(event: JsonObject) -> RenderableType:
    """One transaction: written and deleted records."""
    parts = [_render_signed("+", ui.OK, one) for one in event.get("upserts", ())]
    parts += [_render_signed("-", ui.BAD, one) for one in event.get("deletes", ())]
    return ui.sentence(ui.bold(event.get("revision")), "  ", Text(", ").join(parts))


def render_applied(kind: Kind, record_id: str, response: JsonObject) -> RenderableType:
    """An acknowledged write with its revision."""
    return render_done(kind, record_id, f"(revision {response['revision']})", response)


def render_done(kind: Kind, record_id: str, what: str, response: JsonObject) -> RenderableType:
    """An acknowledged change, with warnings about records that refer to the changed one."""
    head = ui.done(f"{describe_kind(kind)} ", ui.bold(record_id), f" {what}")
    return ui.group_parts(head, ui.render_warnings(response["warnings"]))


def render_lint(findings: Sequence[JsonObject], unjudged: Sequence[JsonObject] = ()) -> RenderableType:
    """Rules that match nothing, bare secrets, and rules that could not be checked."""
    if not findings and not unjudged:
        return Text("✓ every rule matches something", style=ui.OK)
    return ui.stack_parts(
        _render_findings("FINDING", findings),
        Text(f"{ui.count_of(len(unjudged), 'rule')} could not be checked", style=ui.BAD)
        if unjudged
        else None,
        _render_findings("WHY", unjudged),
    )


def _render_findings(heading: str, findings: Sequence[JsonObject]) -> RenderableType | None:
    rows = ((ui.bold(one["where"]), one["rule"], one["message"]) for one in findings)
    return ui.grid("WHERE", "RULE", f"{heading}*", rows=rows) if findings else None


def render_reload(response: JsonObject, *, is_dry_run: bool) -> RenderableType:
    """The changes by a directory of records, made or planned."""
    applied: Sequence[str] = response["applied"]
    head = Text(f"{ui.count_of(len(applied), 'change')}{' planned' if is_dry_run else ''}", style="bold")
    wrong = [ui.sentence(Text("problem: ", style=ui.BAD), ui.cell(one)) for one in response["problems"]]
    return ui.stack_parts(
        Group(head, *(ui.indent(ui.cell(one)) for one in applied)),
        ui.render_warnings(response["warnings"]),
        Group(*wrong) if wrong else None,
    )


_PIN_STATES: Final = {
    "changed": ("~", ui.WARN, "changed since approval"),
    "new": ("+", ui.OK, "new: never approved"),
    "renamed": ("+", ui.WARN, "the new name of"),
    "missing": ("-", ui.BAD, "approved, no longer listed"),
}


def render_pins(pins: Sequence[JsonObject]) -> RenderableType:
    if not pins:
        return Text("no pins: approve a server's tools with `toolgate pins approve SERVER`")
    waiting = {pin["server_id"]: pin.get("waiting") or [] for pin in pins}
    columns = ["SERVER", "EXPOSED TOOLS", *(["QUARANTINED"] if any(waiting.values()) else [])]
    table = ui.grid(*columns)
    for pin in pins:
        held = waiting[pin["server_id"]]
        offered = [name for name in sorted(pin["tools"]) if name not in held]
        row = [ui.bold(pin["server_id"]), ui.join_names(offered), ui.join_names(held, ui.WARN)]
        table.add_row(*row[: len(columns)])
    first = next((server_id for server_id, tools in waiting.items() if tools), None)
    return ui.stack_parts(table, None if first is None else point_to_review([first]))


def render_pin(pin: JsonObject) -> RenderableType:
    """One pin: the approved digest of each tool, and whether the tool is quarantined."""
    waiting = set(pin.get("waiting") or ())
    table = ui.grid("TOOL*", "STATE", "APPROVED DIGEST")
    for name in sorted({*pin["tools"], *waiting}):
        state = ui.cell("quarantined", ui.WARN) if name in waiting else ui.cell("exposed", ui.OK)
        digest = pin["tools"].get(name)
        table.add_row(
            ui.bold(name), state, ui.cell("never approved" if digest is None else digest[:16], ui.DIM)
        )
    head = ui.sentence(ui.bold(pin["server_id"]), Text(f"  revision {pin['revision']}", style=ui.DIM))
    return ui.stack_parts(head, table, point_to_review([pin["server_id"]]) if waiting else None)


def render_differences(server_id: str, tools: Sequence[JsonObject]) -> RenderableType:
    """Each tool that differs from its approved definition, with a diff."""
    if not tools:
        return ui.done(ui.bold(server_id), ": all tools match their approved definitions")
    waits = any(one["state"] != "missing" for one in tools)
    hint = f"approve all with `toolgate pins approve {server_id}`, or one with `--tool NAME`"
    return ui.stack_parts(*map(_render_pin_diff, tools), Text(hint, style=ui.DIM) if waits else None)


def render_pinned(
    server_id: str, response: JsonObject, *, before: Mapping[str, str], after: Mapping[str, str]
) -> RenderableType:
    """An approval, with what changed in it."""
    approved = f": {ui.count_of(len(after), 'tool')} approved (revision {response['revision']})"
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    parts = (
        ("+", ui.OK, after.keys() - before.keys() if before else ()),
        ("~", ui.WARN, changed),
        ("-", ui.BAD, before.keys() - after.keys()),
    )
    lines = [
        ui.indent(ui.sentence(Text(f"{sign} ", style=style), ui.join_names(sorted(tools))))
        for sign, style, tools in parts
        if tools
    ]
    head = ui.done(ui.bold(server_id), approved)
    summary = ui.group_parts(head, *lines, ui.render_warnings(response["warnings"]))
    return ui.stack_parts(*map(_render_pin_diff, response["differences"]), summary)


def point_to_review(server_ids: Iterable[str]) -> RenderableType:
    """The commands that show quarantined tools."""
    commands = ", ".join(f"`toolgate pins review {server_id}`" for server_id in server_ids)
    return ui.sentence(Text("quarantined: ", style=ui.WARN), ui.cell(f"see what changed with {commands}"))


def _render_pin_diff(one: JsonObject) -> RenderableType:
    sign, style, words = _PIN_STATES[one["state"]]
    head: list[Text | str] = [Text(f"{sign} ", style=style), ui.bold(one["tool"]), f": {words}"]
    if one["was"] is not None:
        head += [" ", ui.bold(one["was"])]
    if one["state"] == "changed" and one["listed"] == one["approved"]:
        head.append("; it changed back meanwhile, and this is the version in between")
    digests = [f"{name} {one[name][:12]}" for name in ("approved", "found") if one[name] is not None]
    remark = None
    if one["found"] is not None and not one["diff"]:
        remark = "no diff: one of the two is not stored here, or they differ in too many lines"
    elif one["found"] is not None and one["is_whole"] and one["state"] == "changed":
        remark = "the whole definition: the approved one is not stored here"
    return ui.group_parts(
        ui.sentence(*head),
        ui.indent(ui.cell(", ".join(digests), ui.DIM)),
        *map(ui.render_diff_line, one["diff"]),
        None if remark is None else ui.indent(ui.cell(remark, ui.DIM)),
    )
