"""`toolgate approvals`: the calls that wait for a person, and the decision."""

from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import quote

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.render.approvals import render_approval, render_approvals
from toolgate.cli.render.layout import render_newest
from toolgate.model.approvals import ApprovalState

app = typer.Typer(add_completion=False)
approvals_app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Calls that wait for a person: which there are, and the decision.",
)
app.add_typer(approvals_app, name="approvals")

_PATH: Final = "/admin/api/approvals"
ApprovalArgument = Annotated[
    str, Argument(metavar="ID", help="The approval, as `toolgate approvals list` shows it.")
]


@approvals_app.command("list")
@spread_options
def list_command(
    connection: GatewayConnection,
    *,
    state: Annotated[
        Literal[ApprovalState, "all"],
        Option("--state", metavar="STATE", help=f"{', '.join(get_args(ApprovalState))}, or all."),
    ] = "pending",
    limit: Annotated[int, Option("--limit", min=1, max=1000, help="How many at most.")] = 50,
) -> None:
    """List the calls that wait for a decision, or those of another state, the newest first."""
    query = {"limit": str(limit)} if state == "all" else {"limit": str(limit), "state": state}
    with connection.open() as client:
        answer = client.get(_PATH, query)
    found = answer["approvals"]
    connection.output.show(found, render_newest(render_approvals(found, state), answer, len(found)))


@approvals_app.command("show")
@spread_options
def show_command(approval_id: ApprovalArgument, connection: GatewayConnection) -> None:
    """Show one: who calls what, with which arguments, by which rule it waits, and what became of it."""
    with connection.open() as client:
        found = client.get(_path(approval_id))
    connection.output.show(found, render_approval(found))


@approvals_app.command("approve")
@spread_options
def approve_command(
    approval_id: ApprovalArgument,
    connection: GatewayConnection,
    *,
    reason: Annotated[str, Option("--reason", help="For whoever reads the audit.")] = "",
) -> None:
    """Let the call be made: once, with these arguments, by whoever asked."""
    with connection.open() as client:
        found = _decide(client, approval_id, "approve", reason)
    connection.output.show(found, render_approval(found))


@approvals_app.command("deny")
@spread_options
def deny_command(
    approval_id: ApprovalArgument,
    connection: GatewayConnection,
    *,
    reason: Annotated[str, Option("--reason", help="Told to whoever asked.")] = "",
) -> None:
    """Refuse the call."""
    with connection.open() as client:
        found = _decide(client, approval_id, "deny", reason)
    connection.output.show(found, render_approval(found))


def _decide(client: RestClient, approval_id: str, decision: str, reason: str) -> Any:
    return client.post(f"{_path(approval_id)}/{decision}", {"reason": reason})


def _path(approval_id: str) -> str:
    return f"{_PATH}/{quote(approval_id, safe='')}"
