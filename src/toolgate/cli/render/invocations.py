"""Runs of tasks: lists, one of them, and the lines of its log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    copyable,
    escape_block,
    fact_table,
    grid,
    render_time,
    sentence,
    stack_parts,
)

JsonObject = Mapping[str, Any]

_STATES: Final = {
    "queued": DIM,
    "running": "",
    "succeeded": OK,
    "failed": BAD,
    "cancelled": WARN,
    "crashed": BAD,
}
_LEVELS: Final = {"trace": DIM, "debug": DIM, "info": OK, "warn": WARN, "error": BAD}


def render_invocations(invocations: Sequence[JsonObject]) -> RenderableType:
    """One line a run, the newest first."""
    if not invocations:
        return Text("no runs yet: begin one with `toolgate run TASK`")
    table = grid("INVOCATION", "STATE", "ENDED BY", "TOOK", "MADE")
    table.columns[3].justify = "right"
    for one in invocations:
        table.add_row(
            cell(one["invocation_id"], "bold"),
            _state(one),
            cell(one["ended_by"] if one["exit_code"] is None else f"exit {one['exit_code']}"),
            cell(_took(one)),
            cell(render_time(one["created_ms"], "%m-%d %H:%M")),
        )
    return table


def render_invocation(one: JsonObject) -> RenderableType:
    """Everything about one run but its log."""
    table = fact_table(2)
    table.add_row("invocation", cell(one["invocation_id"], "bold"))
    table.add_row("task", cell(one["task_id"]))
    table.add_row("by", cell(one["principal"]))
    table.add_row("state", _state(one))
    table.add_row("made", cell(f"{render_time(one['created_ms'])} UTC"))
    if one["attempt"] > 1:
        table.add_row("attempt", cell(one["attempt"]))
    ending = one["ending"]
    if ending is None:
        return table
    _add_ending(table, one, ending)
    return stack_parts(table, _calls(ending["calls"]), _output("stdout", ending), _output("stderr", ending))


def _add_ending(table: Any, one: JsonObject, ending: JsonObject) -> None:
    usage = ending["usage"]
    table.add_row("ended by", cell(ending["ended_by"]))
    if ending["exit_code"] is not None:
        table.add_row("exit code", cell(ending["exit_code"]))
    if ending["message"]:
        table.add_row("because", cell(ending["message"]))
    table.add_row("took", cell(_took(one)))
    table.add_row("fuel", cell(f"{usage['fuel']:,}"))
    table.add_row("memory", cell(f"{usage['memory_bytes']:,} bytes"))
    table.add_row("calls", cell(f"{usage['tool_calls']:,} of tools, {usage['model_asks']:,} of models"))
    if ending["is_truncated"]:
        table.add_row("output", cell("some was dropped: raise `limits.max_output_bytes`", WARN))


def _calls(calls: Sequence[JsonObject]) -> RenderableType | None:
    if not calls:
        return None
    table = grid("CALL", "MS", "FAILED", flexible={"FAILED"})
    table.columns[1].justify = "right"
    for call in calls:
        table.add_row(cell(f"{call['server_id']}.{call['tool']}"), cell(call["ms"]), cell(call["code"], BAD))
    return table


def _output(stream: str, ending: JsonObject) -> RenderableType | None:
    text = ending[stream]
    if text is None:
        return sentence(Text(f"{stream}: ", style=DIM), "bytes that are no text, in `--json`")
    return sentence(Text(f"{stream}\n", style=DIM), escape_block(text)) if text else None


def render_line(line: JsonObject) -> Text:
    """One line of a log."""
    text = escape_block(str(line["text"]))
    if line["stream"] != "log":
        return Text(text)
    level = str(line["level"])
    return sentence(Text(f"{level:5}", style=_LEVELS.get(level, "")), " ", text)


def render_started_run(one: JsonObject) -> RenderableType:
    """A run that nobody waits for."""
    said = sentence(cell(one["invocation_id"], "bold"), f" is {one['state']}; how it goes:")
    return Group(said, copyable(f"toolgate invocations show {one['task_id']} {one['invocation_id']}"))


def _state(one: JsonObject) -> Text:
    is_ending = one["is_cancel_asked"] and one["state"] == "running"
    return cell("ending" if is_ending else one["state"], _STATES.get(str(one["state"]), ""))


def _took(one: JsonObject) -> str:
    if one["started_ms"] is None or one["ended_ms"] is None:
        return ""
    return f"{max(0, one['ended_ms'] - one['started_ms']) / 1000:.1f} s"
