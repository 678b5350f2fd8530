"""Runs of tasks: lists, one of them, and the lines of its log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui

JsonObject = Mapping[str, Any]

_STATES: Final = {
    "queued": ui.DIM,
    "running": "",
    "succeeded": ui.OK,
    "failed": ui.BAD,
    "cancelled": ui.WARN,
    "crashed": ui.BAD,
}
_LEVELS: Final = {"trace": ui.DIM, "debug": ui.DIM, "info": ui.OK, "warn": ui.WARN, "error": ui.BAD}


def render_invocations(invocations: Sequence[JsonObject]) -> RenderableType:
    """One line a run, the newest first."""
    if not invocations:
        return Text("no runs yet: begin one with `toolgate run TASK`")
    table = ui.grid("INVOCATION", "STATE", "ENDED BY", "TOOK", "MADE")
    table.columns[3].justify = "right"
    for one in invocations:
        table.add_row(
            ui.bold(one["invocation_id"]),
            _state(one),
            ui.cell(one["ended_by"] if one["exit_code"] is None else f"exit {one['exit_code']}"),
            ui.cell(_took(one)),
            ui.cell(ui.render_time(one["created_ms"], "%m-%d %H:%M")),
        )
    return table


def render_invocation(one: JsonObject) -> RenderableType:
    """Everything about one run but its log."""
    table = ui.unheaded_grid(2)
    table.add_row("invocation", ui.bold(one["invocation_id"]))
    table.add_row("task", ui.cell(one["task_id"]))
    table.add_row("by", ui.cell(one["principal"]))
    table.add_row("state", _state(one))
    table.add_row("made", ui.cell(f"{ui.render_time(one['created_ms'])} UTC"))
    if one["attempt"] > 1:
        table.add_row("attempt", ui.cell(one["attempt"]))
    ending = one["ending"]
    if ending is None:
        return table
    _add_ending(table, one, ending)
    return ui.stack_parts(
        table, _calls(ending["calls"]), _output("stdout", ending), _output("stderr", ending)
    )


def _add_ending(table: Any, one: JsonObject, ending: JsonObject) -> None:
    usage = ending["usage"]
    table.add_row("ended by", ui.cell(ending["ended_by"]))
    if ending["exit_code"] is not None:
        table.add_row("exit code", ui.cell(ending["exit_code"]))
    if ending["message"]:
        table.add_row("because", ui.cell(ending["message"]))
    table.add_row("took", ui.cell(_took(one)))
    table.add_row("fuel", ui.cell(f"{usage['fuel']:,}"))
    table.add_row("memory", ui.cell(f"{usage['memory_bytes']:,} bytes"))
    table.add_row("calls", ui.cell(f"{usage['tool_calls']:,} of tools, {usage['model_asks']:,} of models"))
    if ending["is_truncated"]:
        table.add_row("output", ui.cell("some was dropped: raise `limits.max_output_bytes`", ui.WARN))


def _calls(calls: Sequence[JsonObject]) -> RenderableType | None:
    if not calls:
        return None
    table = ui.grid("CALL", "MS", "FAILED*")
    table.columns[1].justify = "right"
    for call in calls:
        table.add_row(
            ui.cell(f"{call['server_id']}.{call['tool']}"), ui.cell(call["ms"]), ui.cell(call["code"], ui.BAD)
        )
    return table


def _output(stream: str, ending: JsonObject) -> RenderableType | None:
    text = ending[stream]
    if text is None:
        return ui.sentence(Text(f"{stream}: ", style=ui.DIM), "bytes that are no text, in `--json`")
    return ui.sentence(Text(f"{stream}\n", style=ui.DIM), ui.escape_block(text)) if text else None


def render_line(line: JsonObject) -> Text:
    """One line of a log."""
    text = ui.escape_block(str(line["text"]))
    if line["stream"] != "log":
        return Text(text)
    level = str(line["level"])
    return ui.sentence(Text(f"{level:5}", style=_LEVELS.get(level, "")), " ", text)


def render_started_run(one: JsonObject) -> RenderableType:
    """A run that nobody waits for."""
    said = ui.sentence(ui.bold(one["invocation_id"]), f" is {one['state']}; how it goes:")
    return Group(said, ui.copyable(f"toolgate invocations show {one['task_id']} {one['invocation_id']}"))


def _state(one: JsonObject) -> Text:
    is_ending = one["is_cancel_asked"] and one["state"] == "running"
    return ui.cell("ending" if is_ending else one["state"], _STATES.get(str(one["state"]), ""))


def _took(one: JsonObject) -> str:
    if one["started_ms"] is None or one["ended_ms"] is None:
        return ""
    return f"{max(0, one['ended_ms'] - one['started_ms']) / 1000:.1f} s"
