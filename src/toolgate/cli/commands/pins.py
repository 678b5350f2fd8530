"""`toolgate pins`: approved tool definitions. A pinned server exposes its tools only as approved."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from toolgate.cli.command import CommandError, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import RecordGroup, RecordViews, ServerArgument
from toolgate.cli.render.changes import render_differences, render_pin, render_pinned, render_pins
from toolgate.cli.rest import RestClient, build_conditions, build_record_path

app = typer.Typer(add_completion=False)
pins = RecordGroup(
    app,
    "pin",
    RecordViews(many=render_pins, one=render_pin),
    summaries={
        "list": "List the pinned servers with their approved and their quarantined tools.",
        "get": "Show one pin: each tool with the digest of its approved definition.",
        "delete": "Delete a pin: the server's tools are exposed as the server lists them.",
        "diff": (
            "Compare a pin between two registry revisions.\n\n"
            "`toolgate pins review SERVER` compares the server's tools with the pin."
        ),
    },
)


@command(pins.app, "review")
def review_pin(
    server_id: ServerArgument,
    connection: GatewayConnection,
    *,
    tool: Annotated[str | None, "Only this tool, by its name on the server."] = None,
) -> None:
    """Compare a server's tools with what was approved, line by line."""
    connection.print_result(
        build_record_path("pin", server_id, "diff"),
        lambda response: render_differences(server_id, response["tools"]),
        {"tool": tool},
        member="tools",
    )


@command(pins.app, "approve")
def approve_pin(
    server_id: ServerArgument,
    connection: GatewayConnection,
    *,
    chosen: Annotated[
        list[str] | None, "--tool", "Approve only this tool, by its name on the server. Repeatable."
    ] = None,
) -> None:
    """Approve the tools of a server as they are now, and show what changed.

    From then on new tools, and tools whose definition changes, are quarantined until you approve again.
    """
    with connection.open() as client:
        pins_now = client.records("pin")
        before: Mapping[str, Any] = next((one for one in pins_now if one["server_id"] == server_id), {})
        listed = _list_digests(client, server_id)
        for name in chosen or ():
            if name not in listed:
                raise CommandError(
                    f"server `{server_id}` has no tool `{name}` to approve",
                    hint=f"list its tools with `toolgate servers tools {server_id}`",
                )
        approved = {name: listed[name] for name in chosen or listed}
        tools = {**before.get("tools", {}), **approved} if chosen else approved
        path = build_record_path("pin", server_id, "diff")
        differences = client.get(path)["tools"] if before else []
        settled = {name: None for name in before.get("changed") or () if name in approved}
        body = {"server_id": server_id, "tools": tools} | ({"changed": settled} if settled else {})
        # With --tool, concurrent approvals of other tools must not be lost.
        headers = build_conditions(revision=before.get("revision")) if chosen else {}
        response = client.send("PUT", build_record_path("pin", server_id), body, headers=headers)
    # Only what was approved is shown: the server may have changed again meanwhile.
    shown = [one for one in differences if approved.get(one["tool"], "") == one["listed"]]
    response = {**response, "differences": shown}
    rendered = render_pinned(server_id, response, before=before.get("tools", {}), after=tools)
    connection.show(response, rendered)


def _list_digests(client: RestClient, server_id: str) -> dict[str, str]:
    """Digests of the tools that can be approved: exposed ones and quarantined ones."""
    shown = client.get(build_record_path("server", server_id, "tools"))["tools"]
    tools = {
        one["tool"]: one["digest"]
        for one in shown
        if one["digest"] is not None and (one["allowed"] or one["reason"] == "quarantined")
    }
    if not tools:
        hint = f"see why with `toolgate servers tools {server_id}`"
        raise CommandError(f"server `{server_id}` lists no tool to approve", hint=hint)
    return tools
