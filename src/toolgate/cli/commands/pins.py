"""`toolgate pins`: tools offered only as they were approved."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from toolgate.cli.command import CommandError, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import IdArgument, RecordGroup
from toolgate.cli.render.changes import render_differences, render_pinned, render_pins
from toolgate.cli.rest import RestClient, build_conditions, build_record_path

app = typer.Typer(add_completion=False)
pins = RecordGroup(app, "pin")
pins.add_list(
    "List the pinned servers with their approved tools, and those that wait for approval.", render_pins
)


@command(pins.app, "review")
def review_pin(
    server_id: IdArgument,
    connection: GatewayConnection,
    *,
    tool: Annotated[str | None, "Only this tool."] = None,
) -> None:
    """Show line by line how what a server lists differs from what was approved."""
    with connection.open() as client:
        tools = _list_differences(client, server_id, tool)
    connection.output.show(tools, render_differences(server_id, tools))


@command(pins.app, "approve")
def approve_pin(
    server_id: IdArgument,
    connection: GatewayConnection,
    *,
    chosen: Annotated[
        list[str] | None,
        "--tool",
        "Approve this tool alone, and leave the others as they are; may be repeated.",
    ] = None,
) -> None:
    """Approve the tools of a server as they are now, and show what is new in them.

    From then on a tool whose definition changes, and any new tool, is hidden until you do this again.
    """
    with connection.open() as client:
        pins_now = client.records("pin")
        before: Mapping[str, Any] = next((one for one in pins_now if one["server_id"] == server_id), {})
        listed = _list_digests(client, server_id)
        for name in chosen or ():
            if name not in listed:
                raise CommandError(
                    f"server `{server_id}` has no tool `{name}` that could be approved",
                    hint=f"see what it has with `toolgate servers tools {server_id}`",
                )
        approved = {name: listed[name] for name in chosen or listed}
        tools = {**before.get("tools", {}), **approved} if chosen else approved
        differences = _list_differences(client, server_id) if before else []
        settled = {name: None for name in before.get("changed") or () if name in approved}
        body = {"server_id": server_id, "tools": tools} | ({"changed": settled} if settled else {})
        # With --tool, approvals that others make at the same time must not be lost.
        headers = build_conditions(revision=before.get("revision")) if chosen else {}
        response = client.send("PUT", build_record_path("pin", server_id), body, headers=headers)
    # Only what was approved is shown: a server may have changed again in between.
    shown = [one for one in differences if approved.get(one["tool"], "") == one["listed"]]
    response = {**response, "differences": shown}
    rendered = render_pinned(server_id, response, before=before.get("tools", {}), after=tools)
    connection.output.show(response, rendered)


pins.add_plain_delete("delete", "Take the pin off a server: its tools are offered as they come.")
pins.add_past()


def _list_digests(client: RestClient, server_id: str) -> dict[str, str]:
    """Digests of the tools that may be offered. Quarantined tools can be approved, too."""
    shown = client.get(build_record_path("server", server_id, "tools"))["tools"]
    tools = {
        one["tool"]: one["digest"]
        for one in shown
        if one["digest"] is not None and (one["allowed"] or one["reason"] == "quarantined")
    }
    if not tools:
        hint = f"see why with `toolgate servers tools {server_id}`"
        raise CommandError(f"server `{server_id}` offers no tool that could be approved", hint=hint)
    return tools


def _list_differences(client: RestClient, server_id: str, tool: str | None = None) -> Any:
    return client.get(build_record_path("pin", server_id, "diff"), {"tool": tool})["tools"]
