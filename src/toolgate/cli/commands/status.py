"""What a URL shows and why (`tools`, `explain`), what that costs (`tokens`); and `nodes` and `quotas`."""

import math
import time
from functools import partial
from typing import Annotated, Final

import typer
from typer import Argument, Context

from toolgate.cli.command import CommandError, add_group, command
from toolgate.cli.options import (
    GatewayConnection,
    ScopeOptions,
    add_list_commands,
    duration_option,
    parse_duration,
)
from toolgate.cli.render import scope as render
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.records import render_budgets
from toolgate.cli.render.servers import render_node, render_nodes
from toolgate.cli.rest import Query, RestClient
from toolgate.model.names import RESOURCE, kind_of

app = typer.Typer(add_completion=False)
_NODES: Final = "/admin/api/nodes"
_DAY_S: Final = 86_400  # seconds of a day, as the gateway counts tokens


@command(app, "tools")
def tools_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """List the tools of a URL with the tokens each costs.

    Each tool is listed with the rule that allows it.
    """
    connection.print_result("/api/v1/mcp/tools", render.render_tools, scope.query, member="tools")


@command(app, "explain")
def explain_command(
    scope: ScopeOptions,
    connection: GatewayConnection,
    tool: Annotated[
        str | None,
        Argument(help="Only this tool: `git/git_log`, `git.git_log` or `git_log`; or `prompt:…`."),
    ] = None,
    key: Annotated[str | None, "Key id: what this key may use. For admins."] = None,
    side: Annotated[
        str | None, "--side stable|candidate", "Version of all profiles in a rollout to explain."
    ] = None,
) -> None:
    """Show which rule allows or hides each tool.

    Prompts and resources are included. Without a tool, all are explained.
    """
    query = {**scope.query, "key": key, "side": side}
    with connection.open() as client:
        response = _explain_tool(client, query, tool) if tool else client.get("/api/v1/mcp/explain", query)
    connection.show(response, render.render_explanation(response))


def _explain_tool(client: RestClient, query: Query, tool: str) -> JsonObject:
    """The explanation of one tool. A dot may separate server and tool, or be part of the tool's name."""
    kind = kind_of(tool)
    # As in a pattern: the part before the first slash is a server, unless it is the scheme of a URI.
    has_slash = kind or "/" in tool
    server_id, separator, name = tool[len(kind) :].partition("/" if has_slash else ".")
    is_server = separator and not (kind and ":" in server_id)
    readings = [{"server": server_id, "tool": kind + name}] if is_server else []
    if kind or "/" not in tool:
        readings.append({"tool": tool})
    for reading in readings:
        response = client.get("/api/v1/mcp/explain", {**query, **reading})
        if response["tools"]:
            return {**response, "servers": []}
        # The server's tools are unknown, but why it is hidden is known.
        if "server" in reading and response["servers"]:
            return response
    if kind == RESOURCE:
        hint = "for a resource that no server lists, name its server: `resource:SERVER/URI`"
        raise CommandError(f"no server in your scope lists `{tool}`", hint=hint, code="unknown_resource")
    what = "prompt" if kind else "tool"
    hint = "`toolgate explain` lists all names; they are case-sensitive"
    raise CommandError(f"no server in your scope has a {what} `{tool}`", hint=hint, code=f"unknown_{what}")


nodes = add_group(app, "nodes", is_command=True)
add_list_commands(nodes, "List the nodes with their state and revision.", _NODES, "nodes", render_nodes)


@command(nodes, "get")
def get_node(
    node_id: Annotated[str, "NODE", "Node id, as in `toolgate nodes list`."],
    connection: GatewayConnection,
) -> None:
    """Show one node: its state, its revision and its last report."""
    with connection.open() as client:
        found = next((one for one in client.pages(_NODES, "nodes") if one["node_id"] == node_id), None)
    if found is None:
        raise CommandError(
            f"no node `{node_id}` has reported", hint="see `toolgate nodes list`", code="not_found"
        )
    connection.show(found, render_node(found))


@command(app, "quotas")
def quotas_command(connection: GatewayConnection) -> None:
    """Show how much of each quota is used.

    Quotas belong to keys and tasks, and count calls and tokens at all nodes together.

    \b
    toolgate keys create ci --calls-per-minute 60 --tokens-per-day 1000000
    toolgate quotas
    """
    connection.print_list("/admin/api/budgets", "budgets", lambda found: render_budgets(found, time.time()))


tokens = add_group(app, "tokens", is_command=True)


@command(tokens, None)
def tokens_command(
    context: Context,
    connection: GatewayConnection,
    *,
    since: Annotated[str, duration_option(help="How far back, in whole days: `30d`.")] = "7d",
    task: Annotated[str | None, "Task id: only this task, day by day. Empty: calls without a task."] = None,
) -> None:
    """Show what tools cost models in tokens, by task.

    Definitions and results are counted, and what smaller lists save.

    \b
    toolgate tokens --since 30d
    toolgate tokens --task review
    """
    if context.invoked_subcommand is not None:
        return
    days = math.ceil(parse_duration(since) / _DAY_S)
    shown = partial(render.render_token_use, by_day=task is not None)
    connection.print_result("/admin/api/tokens", shown, {"days": days, "task": task})


@command(tokens, "price")
def price_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """Show what each tool of a URL costs a model in tokens.

    The sum is compared with the cost of all registered tools.
    """
    connection.print_result("/api/v1/mcp/scope", render.render_price, scope.query)
