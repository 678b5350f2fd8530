"""`toolgate servers`: register MCP servers, look at them, test them.

`toolgate chat-upstreams`: the servers of models that the chat door asks.
"""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.client.login_callback import check_callback, open_callback, parse_callback
from toolgate.cli.client.rest import COLLECTIONS, WriteConditions, build_login_path, build_record_path
from toolgate.cli.failure import ExitCode, UsageError
from toolgate.cli.files.records import load_record, read_text
from toolgate.cli.option_groups import add_group, command
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import (
    ConditionOptions,
    FilesOption,
    IdArgument,
    PlanOption,
    add_past_commands,
    apply_files,
    delete_record,
)
from toolgate.cli.render.changes import render_imported
from toolgate.cli.render.chat_upstreams import (
    render_chat_trial,
    render_chat_upstream,
    render_chat_upstreams,
)
from toolgate.cli.render.layout import escape_line
from toolgate.cli.render.servers import (
    render_login,
    render_logout,
    render_refreshed,
    render_server,
    render_server_json,
    render_server_tools,
    render_servers,
    render_test,
)

SharedOption = Annotated[
    bool,
    Option("--shared", help="The login that lists a server to which each principal logs in for itself."),
]

app = typer.Typer(add_completion=False)
servers_app = add_group(app, "servers", "Register MCP servers, look at them, test them.")


@command(servers_app, "list")
def list_command(connection: GatewayConnection) -> None:
    """List the servers with their state, tools and what is wrong with them."""
    with connection.open() as client:
        servers = client.records("server")
    connection.output.show(servers, render_servers(servers))


@command(servers_app, "get")
def get_command(server_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one server in full. Secrets are masked."""
    with connection.open() as client:
        server = client.record("server", server_id)
    connection.output.show(server, render_server(server))


@command(servers_app, "apply")
def apply_command(files: FilesOption, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Create or replace servers from files.

    `toolgate plan -f FILE` shows beforehand what that does to each task.
    """
    apply_files("server", files, connection, on.terms)


@command(servers_app, "delete")
def delete_command(server_id: IdArgument, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Remove a server. Its connection is closed and its tools leave every scope."""
    delete_record("server", server_id, connection, on.terms)


@command(servers_app, "test")
def try_command(
    connection: GatewayConnection,
    server_id: Annotated[str | None, Argument(help="Its id.", show_default=False)] = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Try the server in this file instead, before it is saved.")
    ] = None,
) -> None:
    """Connect to a server once and list its tools; exit code 1 if that fails.

    A server in a file must be fit to be saved, and is not.
    """
    if (server_id is None) == (file is None):
        raise UsageError("give either an id or --file")
    draft = None if file is None else load_record(file, kind="server")
    tried = draft.id if draft else str(server_id)
    with connection.open() as client:
        report = client.test_server(tried, draft.body if draft else None)
    connection.output.show(report, render_test(tried, report))
    if report.get("error"):
        raise typer.Exit(ExitCode.FAILED)


@command(servers_app, "refresh")
def refresh_command(server_id: IdArgument, connection: GatewayConnection) -> None:
    """Have the gateway list a server's tools again, now."""
    with connection.open() as client:
        answer = client.post(f"{build_record_path('server', server_id)}/refresh")
    connection.output.show(answer, render_refreshed(answer))


@command(servers_app, "login")
def login_command(
    server_id: IdArgument,
    connection: GatewayConnection,
    *,
    is_pasted: Annotated[
        bool, Option("--paste", help="Ask for the address the browser ended at: it runs on another machine.")
    ] = False,
    is_shared: SharedOption = False,
    scopes: Annotated[
        list[str] | None,
        Option("--scope", help="To ask for, beside those of the login before; may be repeated."),
    ] = None,
) -> None:
    """Let the gateway use a server on your behalf: agree in the browser.

    The server's record needs `http.oauth` with the grant `authorization_code`. With `per_principal` there, it
    is for your own calls; else for those of all callers, and you need a key with the role `admin`.
    """
    path, terms = build_login_path(server_id), {"shared": True} if is_shared else {}
    with connection.open() as client, open_callback() as callback:
        wanted = {"scopes": scopes} if scopes else {}
        begun = client.post(path, {"redirect_uri": callback.url, **wanted, **terms})
        url, state = str(begun["authorization_url"]), str(begun["state"])
        typer.echo(f"open this address and agree:\n{escape_line(url)}", err=True)
        if is_pasted:
            answer = parse_callback(typer.prompt("the address the browser ended at", err=True))
        else:
            # The gateway has made sure that it is one of the web, and no shell is involved.
            webbrowser.open(url)
            answer = callback.wait(state)
        finished = client.post(f"{path}/finish", {**check_callback(answer, state), **terms})
    connection.output.show(finished, render_login(finished))


@command(servers_app, "logout")
def logout_command(
    server_id: IdArgument, connection: GatewayConnection, *, is_shared: SharedOption = False
) -> None:
    """Have the gateway forget the token that a login earned, and the authorization server take it back."""
    with connection.open() as client:
        answer = client.delete_path(build_login_path(server_id), {"shared": "true"} if is_shared else None)
    connection.output.show(answer, render_logout(answer))


@command(servers_app, "tools")
def tools_command(
    server_id: IdArgument,
    connection: GatewayConnection,
    task: Annotated[str | None, Option("--task", help="As this task sees them.")] = None,
) -> None:
    """List a server's tools with their names on the doors, and why one is held back."""
    with connection.open() as client:
        answer = client.get(
            f"{build_record_path('server', server_id)}/tools", {"task": task} if task else None
        )
    connection.output.show([*answer["tools"], *answer.get("others", ())], render_server_tools(answer))


@command(servers_app, "export")
def export_command(server_id: IdArgument, connection: GatewayConnection) -> None:
    """Print a server as a `server.json`, to be published elsewhere. Secrets are left to be filled in."""
    with connection.open() as client:
        answer = client.get(f"{build_record_path('server', server_id)}/server.json")
    connection.output.show(answer, render_server_json(answer))


@command(servers_app, "import")
def import_command(
    file: Annotated[
        Path,
        Argument(
            help="`mcpServers` JSON, VS Code's `mcp.json`, `server.json`, Docker's catalog, or our own file."
        ),
    ],
    connection: GatewayConnection,
    *,
    allow: Annotated[
        list[str] | None,
        Option("--allow", help="Pattern of tools to allow, `*` for all. Without it none are."),
    ] = None,
    is_dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; change nothing.")] = False,
    plan_id: PlanOption = None,
) -> None:
    """Register the servers of another program's configuration, all or none.

    A new server may offer no tool until `allowed_tools` says so: give --allow, or edit the records.
    """
    if file.suffix.lower() == ".mcpb":
        raise UsageError(
            f"`{file}` is a bundle, with the program itself in it",
            hint=f"install it: `toolgate install {file}`",
        )
    body = {
        "format": "auto",
        "content": read_text(file),
        "allowed_tools": allow or [],
        "dry_run": is_dry_run,
    }
    with connection.open() as client:
        answer = client.post(f"{COLLECTIONS['server']}/import", body, terms=WriteConditions(plan_id=plan_id))
    connection.output.show(answer, render_imported(answer, is_dry_run=is_dry_run))


add_past_commands(servers_app, "server")


chat_upstreams_app = add_group(
    app, "chat-upstreams", "Chat upstreams: the OpenAI-compatible endpoints whose models the chat door asks."
)


@command(chat_upstreams_app, "list")
def list_upstreams_command(connection: GatewayConnection) -> None:
    """List the chat upstreams with the models they are asked for."""
    with connection.open() as client:
        upstreams = client.records("chat_upstream")
    connection.output.show(upstreams, render_chat_upstreams(upstreams))


@command(chat_upstreams_app, "show")
def show_upstream_command(upstream_id: IdArgument, connection: GatewayConnection) -> None:
    """Show one chat upstream in full. Secrets are masked."""
    with connection.open() as client:
        upstream = client.record("chat_upstream", upstream_id)
    connection.output.show(upstream, render_chat_upstream(upstream))


@command(chat_upstreams_app, "apply")
def apply_upstreams_command(files: FilesOption, connection: GatewayConnection, on: ConditionOptions) -> None:
    """Create or replace chat upstreams from files.

    `toolgate chat-upstreams test -f FILE` asks one for its models beforehand.
    """
    apply_files("chat_upstream", files, connection, on.terms)


@command(chat_upstreams_app, "delete")
def delete_upstream_command(
    upstream_id: IdArgument, connection: GatewayConnection, on: ConditionOptions
) -> None:
    """Remove a chat upstream. Its models are asked no more."""
    delete_record("chat_upstream", upstream_id, connection, on.terms)


@command(chat_upstreams_app, "test")
def try_upstream_command(
    connection: GatewayConnection,
    upstream_id: Annotated[str | None, Argument(help="Its id.", show_default=False)] = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Try the one in this file instead, before it is saved.")
    ] = None,
) -> None:
    """Ask a chat upstream once for its models; exit code 1 if that fails.

    One in a file must be fit to be saved, and is not. No model is asked anything.
    """
    if (upstream_id is None) == (file is None):
        raise UsageError("give either an id or --file")
    draft = None if file is None else load_record(file, kind="chat_upstream")
    tried = draft.id if draft else str(upstream_id)
    with connection.open() as client:
        report = client.post(
            f"{build_record_path('chat_upstream', tried)}/test", draft.body if draft else None
        )
    connection.output.show(report, render_chat_trial(tried, report))
    if not report["ok"]:
        raise typer.Exit(ExitCode.FAILED)


add_past_commands(chat_upstreams_app, "chat_upstream")
