"""What a URL shows and why (`tools`, `explain`), what that costs (`tokens`); and `nodes` and `quotas`."""

import time
from typing import Annotated, Final

import typer
from typer import Argument, Context

from toolgate.cli.command import CommandError, add_group, command
from toolgate.cli.options import GatewayConnection, ScopeOptions, duration_option, parse_duration
from toolgate.cli.render import scope as render
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.records import render_budgets
from toolgate.cli.render.servers import render_nodes
from toolgate.cli.rest import Query, RestClient
from toolgate.model.names import RESOURCE, kind_of

app = typer.Typer(add_completion=False)
_DAY_S: Final = 86_400  # seconds of a day, as the gateway counts tokens


@command(app, "tools")
def tools_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """List the tools of a URL, with their tokens and the rule that allows each."""
    connection.print_result("/api/v1/mcp/tools", render.render_tools, scope.query, member="tools")


@command(app, "explain")
def explain_command(
    scope: ScopeOptions,
    connection: GatewayConnection,
    tool: Annotated[
        str | None,
        Argument(help="One tool: `git/git_log`, `git.git_log` or `git_log`; or `prompt:…`. Default: all."),
    ] = None,
    key: Annotated[str | None, "As this key sees it: its id, for admins."] = None,
    side: Annotated[
        str | None, "With this version of every profile in a rollout: `stable` or `candidate`."
    ] = None,
) -> None:
    """Say for every tool, prompt and resource which layer and rule decided about it."""
    query = {**scope.query, "key": key, "side": side}
    with connection.open() as client:
        response = _explain_tool(client, query, tool) if tool else client.get("/api/v1/mcp/explain", query)
    connection.output.show(response, render.render_explanation(response))


def _explain_tool(client: RestClient, query: Query, tool: str) -> JsonObject:
    """The answer about one tool. A dot may part server and tool, or be part of the tool's name."""
    kind = kind_of(tool)
    # As in a pattern: a server may stand before the first slash, unless it is a URI's own scheme.
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
        # Its tools are not known, but it is known why it is left out.
        if "server" in reading and response["servers"]:
            return response
    if kind == RESOURCE:
        hint = "for what no server lists, name the server that has it: `resource:SERVER/URI`"
        raise CommandError(f"no server that you may see lists `{tool}`", hint=hint, code="unknown_resource")
    what = "prompt" if kind else "tool"
    hint = "see `toolgate explain` for what there is; names are case-sensitive"
    raise CommandError(f"no server that you may see has a {what} `{tool}`", hint=hint, code=f"unknown_{what}")


@command(app, "nodes")
def nodes_command(connection: GatewayConnection) -> None:
    """List the nodes with the revision each serves, and when it last reported."""
    connection.print_result("/admin/api/nodes", render_nodes, member="nodes")


@command(app, "quotas")
def quotas_command(connection: GatewayConnection) -> None:
    """Show the budgets of keys and tasks over time: what is used at all nodes together, and when each resets.

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
    task: Annotated[str | None, "Only this task, day by day. Empty: callers without one."] = None,
) -> None:
    """Show what tools cost models in tokens, task by task: definitions, results, and what is saved.

    \b
    toolgate tokens --since 30d
    toolgate tokens --task review
    """
    if context.invoked_subcommand is not None:
        return
    days = -(-parse_duration(since) // _DAY_S)
    render_tokens = render.render_token_tasks if task is None else render.render_token_days
    connection.print_result("/admin/api/tokens", render_tokens, {"days": days, "task": task})


@command(tokens, "price")
def price_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """Show what each tool of a URL costs a model in tokens, their sum, and what the full set would cost."""
    connection.print_result("/api/v1/mcp/scope", render.render_price, scope.query)
