"""Calls that wait for a person: a list, and one of them whole."""

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
    encode_json,
    fact_table,
    grid,
    render_time,
    sentence,
    stack_parts,
)

JsonObject = Mapping[str, Any]

_STATES: Final = {"pending": WARN, "approved": OK, "denied": BAD, "expired": DIM, "used": OK}


def render_approvals(approvals: Sequence[JsonObject], state: str) -> RenderableType:
    """One line a call in that `state`, the newest first."""
    if not approvals:
        nothing = "no call waits: `--state all` shows those that were decided on"
        return Text(nothing if state == "pending" else "there are none")
    table = grid("APPROVAL", "STATE", "UNTIL (UTC)", "CALL", flexible={"CALL"})
    for one in approvals:
        call = cell(f"{one['server_id']}.{one['tool']} by {one['principal']}")
        until = cell(render_time(one["expires_ms"], "%m-%d %H:%M"))
        shown = Group(call, _arguments(one, longest=120))
        table.add_row(cell(one["approval_id"], "bold"), _state(one), until, shown)
    return table


def render_approval(one: JsonObject) -> RenderableType:
    """All there is of one, and what can be done with it."""
    table = fact_table(2)
    table.add_row("approval", cell(one["approval_id"], "bold"))
    table.add_row("state", _state(one))
    table.add_row("tool", cell(f"{one['server_id']}.{one['tool']}"))
    table.add_row("arguments", _arguments(one))
    table.add_row("by", cell(one["principal"]))
    if one["task_id"]:
        table.add_row("task", cell(one["task_id"]))
    table.add_row("door", cell(one["door"]))
    table.add_row("why", cell(one["why"]))
    table.add_row("asked", cell(_when(one["created_ms"])))
    table.add_row("until", cell(_when(one["expires_ms"])))
    for name, value in _decision(one):
        table.add_row(name, cell(value))
    return stack_parts(table, _next(one))


def _decision(one: JsonObject) -> list[tuple[str, str]]:
    facts_ = []
    if one["decided_ms"] is not None:
        facts_.append(("decided", f"{_when(one['decided_ms'])} by {one['decided_by']}"))
    if one["reason"]:
        facts_.append(("reason", one["reason"]))
    if one["used_ms"] is not None:
        facts_.append(("used", _when(one["used_ms"])))
    return facts_


def _next(one: JsonObject) -> RenderableType | None:
    if one["state"] == "pending":
        # The id is the gateway's own.
        approval_id = cell(one["approval_id"]).plain
        commands = (
            f"toolgate approvals approve {approval_id}\ntoolgate approvals deny {approval_id} --reason …"
        )
        return Group(Text("to decide:"), copyable(commands))
    if one["state"] == "approved":
        return sentence("the call passes when it is repeated, once")
    return None


def _arguments(one: JsonObject, *, longest: int | None = None) -> Text:
    """Every character counts: not even spaces are put together."""
    text = encode_json(one["arguments"])
    return Text(text if longest is None or len(text) <= longest else f"{text[:longest]}…", overflow="fold")


def _state(one: JsonObject) -> Text:
    return cell(one["state"], _STATES.get(str(one["state"]), ""))


def _when(at_ms: int) -> str:
    return f"{render_time(at_ms)} UTC"
