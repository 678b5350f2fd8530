"""`toolgate tools`, `price` and `explain`: what a URL shows, what that costs, and why."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError
from toolgate.cli.option_groups import command
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render.scope import render_explanation, render_price, render_tools
from toolgate.model.names import RESOURCE, kind_of

app = typer.Typer(add_completion=False)


@command(app, "tools")
def tools_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """List the tools of a URL, with their tokens and the rule that allows each."""
    connection.print_answer("/api/v1/mcp/tools", render_tools, scope.query, member="tools")


@command(app, "price")
def price_command(scope: ScopeOptions, connection: GatewayConnection) -> None:
    """Show what each tool of a URL costs a model in tokens, their sum, and what the full set would cost."""
    connection.print_answer("/api/v1/mcp/scope", render_price, scope.query)


@command(app, "explain")
def explain_command(
    scope: ScopeOptions,
    connection: GatewayConnection,
    tool: Annotated[
        str | None,
        Argument(help="One tool: `git/git_log`, `git.git_log` or `git_log`; or `prompt:…`. Default: all."),
    ] = None,
    key: Annotated[str | None, Option("--key", help="As this key sees it: its id, for admins.")] = None,
    side: Annotated[
        str | None,
        Option("--side", help="With this version of every profile in a rollout: `stable` or `candidate`."),
    ] = None,
) -> None:
    """Say for every tool, prompt and resource which layer and rule decided about it."""
    query = scope.query | ({} if key is None else {"key": key}) | ({} if side is None else {"side": side})
    with connection.open() as client:
        answer = explain_tool(client, query, tool) if tool else client.get("/api/v1/mcp/explain", query)
    connection.output.show(answer, render_explanation(answer))


def explain_tool(client: RestClient, query: Mapping[str, str], tool: str) -> Mapping[str, Any]:
    """The answer about one tool. A dot may part server and tool, or be part of the tool's name."""
    for reading in _interpret_name(tool):
        answer: Mapping[str, Any] = client.get("/api/v1/mcp/explain", {**query, **reading})
        if answer["tools"]:
            return {**answer, "servers": []}
        # Its tools are not known, but it is known why it is left out.
        if "server" in reading and answer["servers"]:
            return answer
    if kind_of(tool) == RESOURCE:
        raise CommandError(
            f"no server that you may see lists `{tool}`",
            hint="for what no server lists, name the server that has it: `resource:SERVER/URI`",
            code="unknown_resource",
        )
    raise CommandError(
        f"no server that you may see has a {'prompt' if kind_of(tool) else 'tool'} `{tool}`",
        hint="see `toolgate explain` for what there is; names are case-sensitive",
        code="unknown_prompt" if kind_of(tool) else "unknown_tool",
    )


def _interpret_name(tool: str) -> list[dict[str, str]]:
    kind = kind_of(tool)
    if kind:
        # As in a pattern: a server may stand before the first slash, unless it is a URI's own scheme.
        server_id, slash, name = tool[len(kind) :].partition("/")
        is_server = slash and ":" not in server_id
        return ([{"server": server_id, "tool": kind + name}] if is_server else []) + [{"tool": tool}]
    if "/" in tool:
        server_id, _, name = tool.partition("/")
        return [{"server": server_id, "tool": name}]
    server_id, dot, name = tool.partition(".")
    return ([{"server": server_id, "tool": name}] if dot else []) + [{"tool": tool}]
