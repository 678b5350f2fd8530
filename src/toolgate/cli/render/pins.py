"""Pins: what was approved, what differs from that, and what an approval changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject

_STATES: Final = {
    "changed": ("~", ui.WARN, "changed after it was approved"),
    "new": ("+", ui.OK, "new: never approved"),
    "renamed": ("+", ui.WARN, "the new name of"),
    "missing": ("-", ui.BAD, "approved, and not listed any more"),
}


def render_pins(pins: Sequence[JsonObject]) -> RenderableType:
    """One line a pinned server."""
    if not pins:
        return Text("no pins yet: approve a server's tools with `toolgate pins set SERVER`")
    waiting = {pin["server_id"]: pin.get("waiting") or [] for pin in pins}
    columns = (
        ["SERVER", "APPROVED TOOLS", "WAITING"] if any(waiting.values()) else ["SERVER", "APPROVED TOOLS"]
    )
    table = ui.grid(*columns)
    for pin in pins:
        held = waiting[pin["server_id"]]
        offered = [name for name in sorted(pin["tools"]) if name not in held]
        row = [ui.bold(pin["server_id"]), ui.join_names(offered), ui.join_names(held, ui.WARN)]
        table.add_row(*row[: len(columns)])
    first = next((server_id for server_id, tools in waiting.items() if tools), None)
    return ui.stack_parts(table, None if first is None else point_to_diff([first]))


def render_differences(server_id: str, tools: Sequence[JsonObject]) -> RenderableType:
    """Each tool that differs, with the lines of its diff."""
    if not tools:
        return ui.done(ui.bold(server_id), ": every tool is as it was approved")
    waits = any(one["state"] != "missing" for one in tools)
    hint = f"approve what you agree with: `toolgate pins set {server_id}`, or with `--tool NAME` one alone"
    return ui.stack_parts(*map(_difference, tools), Text(hint, style=ui.DIM) if waits else None)


def render_pinned(
    server_id: str,
    answer: JsonObject,
    *,
    before: Mapping[str, str],
    after: Mapping[str, str],
    differences: Sequence[JsonObject],
) -> RenderableType:
    """An approval, with what is new in it."""
    head = ui.sentence(
        Text("✓ ", style=ui.OK),
        ui.bold(server_id),
        f": {ui.count_of(len(after), 'tool')} approved (revision {answer['revision']})",
    )
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
    summary = Group(head, *lines, *filter(None, [ui.render_warnings(answer["warnings"])]))
    return ui.stack_parts(*map(_difference, differences), summary)


def point_to_diff(server_ids: Iterable[str]) -> RenderableType:
    """Where to look at what waits for approval."""
    commands = ", ".join(f"`toolgate pins diff {server_id}`" for server_id in server_ids)
    return ui.sentence(
        Text("waiting for approval: ", style=ui.WARN), ui.cell(f"see what changed with {commands}")
    )


def _difference(one: JsonObject) -> RenderableType:
    sign, style, words = _STATES[one["state"]]
    head: list[Text | str] = [Text(f"{sign} ", style=style), ui.bold(one["tool"]), f": {words}"]
    if one["was"] is not None:
        head += [" ", ui.bold(one["was"])]
    if one["state"] == "changed" and one["listed"] == one["approved"]:
        head.append(", and has changed back; this is what it was in between")
    digests = [f"{name} {one[name][:12]}" for name in ("approved", "found") if one[name] is not None]
    lines = map(ui.render_diff_line, (one["diff"]))
    return Group(ui.sentence(*head), ui.indent(ui.cell(", ".join(digests), ui.DIM)), *lines, *_remarks(one))


def _remarks(one: JsonObject) -> list[RenderableType]:
    if one["found"] is None:
        return []
    if not one["diff"]:
        return [
            ui.indent(
                ui.cell(
                    "the lines are not at hand: one of the two is not kept here, or there are too many",
                    ui.DIM,
                )
            )
        ]
    if one["is_whole"] and one["state"] == "changed":
        return [ui.indent(ui.cell("this is all of it: what was approved is not kept here", ui.DIM))]
    return []
