"""`toolgate approvals`: calls that wait for an approver, and the approver's decision."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from toolgate.cli.command import add_group, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import build_path
from toolgate.model.approvals import ApprovalState

app = typer.Typer(add_completion=False)
approvals = add_group(app, "approvals")

ApprovalArgument = Annotated[str, "APPROVAL", "Approval id, as in `toolgate approvals list`."]

_PATH: Final = "/admin/api/approvals"
_STATES: Final = {"pending": ui.WARN, "approved": ui.OK, "denied": ui.BAD, "expired": ui.DIM, "used": ui.OK}


@command(approvals, "list")
def list_approvals(
    connection: GatewayConnection,
    *,
    state: Annotated[
        Literal[ApprovalState, "all"], "--state STATE", "Only approvals in this state."
    ] = "pending",
    limit: Annotated[int, Option(min=1, max=1000, help="Number of approvals to list, at most 1000.")] = 50,
) -> None:
    """List the calls that wait for a decision, newest first."""
    query = {"limit": limit, "state": None if state == "all" else state}
    shown = partial(ui.render_newest, "approvals", partial(render_approvals, state=state))
    connection.print_result(_PATH, shown, query, member="approvals")


@command(approvals, "get")
def show_approval(approval_id: ApprovalArgument, connection: GatewayConnection) -> None:
    """Show one call: its caller, arguments and rule, and the decision."""
    connection.print_result(build_path(_PATH, approval_id), render_approval)


def _add_decision(decision: str, summary: str, reason_help: str) -> None:
    @command(approvals, decision, summary)
    def decide(
        approval_id: ApprovalArgument,
        connection: GatewayConnection,
        *,
        reason: Annotated[str, reason_help] = "",
    ) -> None:
        path = build_path(_PATH, approval_id, decision)
        connection.send("POST", path, render_approval, {"reason": reason})


_add_decision(
    "approve",
    "Approve the call: once, with these arguments, by the same caller.",
    "Reason, recorded in the audit log.",
)
_add_decision("deny", "Deny the call.", "Reason, sent to the caller.")


def render_approvals(found: Sequence[JsonObject], state: str) -> RenderableType:
    """One line per call in that `state`, newest first."""
    if not found:
        nothing = "no call waits: `--state all` also lists those already decided"
        return Text(nothing if state == "pending" else "no approvals")
    table = ui.grid("APPROVAL", "STATE", "EXPIRES (UTC)", "CALL*")
    for one in found:
        until = ui.render_time(one["expires_ms"], "%m-%d %H:%M")
        call = ui.cell(f"{one['server_id']}.{one['tool']} by {one['principal']}")
        lines = Group(call, _render_arguments(one, longest=120))
        table.add_row(ui.bold(one["approval_id"]), _render_state(one), until, lines)
    return table


def render_approval(one: JsonObject) -> RenderableType:
    """One approval in full, and the next step."""
    decided_ms, used_ms = one["decided_ms"], one["used_ms"]
    table = ui.fact_table(
        {
            "approval": ui.bold(one["approval_id"]),
            "state": _render_state(one),
            "tool": f"{one['server_id']}.{one['tool']}",
            "arguments": _render_arguments(one),
            "by": one["principal"],
            "task": one["task_id"],
            "endpoint": one["door"],
            "rule": one["why"],
            "created": _render_utc(one["created_ms"]),
            "expires": _render_utc(one["expires_ms"]),
            "decided": None if decided_ms is None else f"{_render_utc(decided_ms)} by {one['decided_by']}",
            "reason": one["reason"],
            "used": None if used_ms is None else _render_utc(used_ms),
        }
    )
    next_step: RenderableType | None = None
    if one["state"] == "pending":
        # The id is the gateway's own.
        approve_it = f"toolgate approvals approve {ui.cell(one['approval_id']).plain}"
        deny_it = f"toolgate approvals deny {ui.cell(one['approval_id']).plain} --reason …"
        next_step = ui.copyable(f"{approve_it}\n{deny_it}", "To decide:", "")
    elif one["state"] == "approved":
        next_step = Text("the call passes once, when the caller repeats it")
    return ui.stack_parts(table, next_step)


def _render_arguments(one: JsonObject, *, longest: int | None = None) -> Text:
    """Every character counts: not even spaces are merged."""
    text = ui.encode_json(one["arguments"])
    return Text(text if longest is None or len(text) <= longest else f"{text[:longest]}…", overflow="fold")


def _render_state(one: JsonObject) -> Text:
    return ui.cell(one["state"], _STATES.get(str(one["state"]), ""))


def _render_utc(at_ms: int) -> str:
    return f"{ui.render_time(at_ms)} UTC"
