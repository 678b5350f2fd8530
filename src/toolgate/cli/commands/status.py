"""What a URL shows, what that costs and why (`tools`, `price`, `explain`); and `nodes`, `budgets`, `tokens`
and `version`.
"""

import platform
import time
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from toolgate import __version__
from toolgate.cli.command import CommandError, CommandOutput, JsonOption, command
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render import scope as render
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.records import render_budgets
from toolgate.cli.render.servers import render_nodes
from toolgate.cli.rest import Query, RestClient
from toolgate.model.names import RESOURCE, kind_of

app = typer.Typer(add_completion=False)


@command(app, "tools")
def tools_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """List the tools of a URL, with their tokens and the rule that allows each."""
    connection.print_result("/api/v1/mcp/tools", render.render_tools, scope.query, member="tools")


@command(app, "price")
def price_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """Show what each tool of a URL costs a model in tokens, their sum, and what the full set would cost."""
    connection.print_result("/api/v1/mcp/scope", render.render_price, scope.query)


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


@command(app, "budgets")
def budgets_command(connection: GatewayConnection) -> None:
    """Show the budgets of keys and tasks over time: what is used at all nodes together, and when each resets.

    \b
    toolgate keys add ci --calls-per-minute 60 --tokens-per-day 1000000
    toolgate budgets
    """
    connection.print_list("/admin/api/budgets", "budgets", lambda found: render_budgets(found, time.time()))


@command(app, "tokens")
def tokens_command(
    connection: GatewayConnection,
    *,
    days: Annotated[int, Option(min=1, max=366, help="How many days, today included.")] = 7,
    task: Annotated[str | None, "Only this task, day by day. Empty: callers without one."] = None,
) -> None:
    """Show what tools cost models in tokens, task by task: definitions, results, and what is saved.

    \b
    toolgate tokens --days 30
    toolgate tokens --task review
    """
    render_tokens = render.render_token_tasks if task is None else render.render_token_days
    connection.print_result("/admin/api/tokens", render_tokens, {"days": days, "task": task})


@command(app, "version")
def version_command(*, as_json: JsonOption = False) -> None:
    """Print the version of this program."""
    facts = {"toolgate": __version__, "python": platform.python_version(), "platform": platform.system()}
    line = f"toolgate {__version__} (Python {facts['python']}, {facts['platform']})"
    CommandOutput(as_json=as_json).show(facts, Text(line))
