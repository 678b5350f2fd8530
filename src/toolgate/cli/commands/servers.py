"""`toolgate servers` and `toolgate chat-upstreams`: what the gateway connects to."""

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client.login_callback import check_callback, open_callback, parse_callback
from toolgate.cli.client.rest import (
    COLLECTIONS,
    WriteConditions,
    build_login_path,
    build_record_path,
)
from toolgate.cli.failure import ExitCode, UsageError
from toolgate.cli.files.records import load_record, read_text
from toolgate.cli.option_groups import command
from toolgate.cli.options import DryRunOption, GatewayConnection
from toolgate.cli.record_commands import IdArgument, PlanOption, RecordGroup
from toolgate.cli.render import chat_upstreams as render_upstreams
from toolgate.cli.render import servers as render
from toolgate.cli.render.changes import render_imported
from toolgate.cli.render.layout import escape_line
from toolgate.model.revisions import Kind

IdOrNone = Annotated[str | None, Argument(help="Its id.", show_default=False)]
SharedOption = Annotated[
    bool,
    Option("--shared", help="The login that lists a server to which each principal logs in for itself."),
]

app = typer.Typer(add_completion=False)

servers = RecordGroup(app, "servers", "server", "Register MCP servers, look at them, test them.")
servers.add_list(
    "List the servers with their state, tools and what is wrong with them.", render.render_servers
)
servers.add_show("get", "Show one server in full. Secrets are masked.", render.render_server)
servers.add_apply(
    "Create or replace servers from files.\n\n"
    "`toolgate plan -f FILE` shows beforehand what that does to each task."
)
servers.add_delete("Remove a server. Its connection is closed and its tools leave every scope.")


@command(servers.app, "test")
def try_server(
    connection: GatewayConnection,
    server_id: IdOrNone = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Try the server in this file instead, before it is saved.")
    ] = None,
) -> None:
    """Connect to a server once and list its tools; exit code 1 if that fails.

    A server in a file must be valid; it is not saved.
    """
    tried, draft = _choose_record("server", server_id, file)
    with connection.open() as client:
        report = client.test_server(tried, draft)
    connection.output.show(report, render.render_test(tried, report))
    if report.get("error"):
        raise typer.Exit(ExitCode.FAILED)


def _choose_record(kind: Kind, record_id: str | None, file: Path | None) -> tuple[str, Any]:
    """What to try: the id of a record, and the body of the one in a file if that is given."""
    if (record_id is None) == (file is None):
        raise UsageError("give either an id or --file")
    if file is None:
        return str(record_id), None
    draft = load_record(file, kind=kind)
    return draft.id, draft.body


@command(servers.app, "refresh")
def refresh_server(server_id: IdArgument, connection: GatewayConnection) -> None:
    """Have the gateway list a server's tools again, now."""
    with connection.open() as client:
        answer = client.post(f"{build_record_path('server', server_id)}/refresh")
    connection.output.show(answer, render.render_refreshed(answer))


@command(servers.app, "login")
def log_in(
    server_id: IdArgument,
    connection: GatewayConnection,
    *,
    is_pasted: Annotated[
        bool, Option("--paste", help="Ask for the address the browser ended at: it runs on another machine.")
    ] = False,
    is_shared: SharedOption = False,
    scopes: Annotated[
        list[str] | None,
        Option("--scope", help="To request, in addition to those of the login before; may be repeated."),
    ] = None,
) -> None:
    """Let the gateway use a server on your behalf: agree in the browser.

    The server's record needs `http.oauth` with the grant `authorization_code`. With `per_principal` there, it
    is for your own calls; else for those of all callers, and you need a key with the role `admin`.
    """
    path, shared = build_login_path(server_id), {"shared": True} if is_shared else {}
    with connection.open() as client, open_callback() as callback:
        requested = {"scopes": scopes} if scopes else {}
        begun = client.post(path, {"redirect_uri": callback.url, **requested, **shared})
        url, state = str(begun["authorization_url"]), str(begun["state"])
        typer.echo(f"open this address and agree:\n{escape_line(url)}", err=True)
        if is_pasted:
            answer = parse_callback(typer.prompt("the address the browser ended at", err=True))
        else:
            # The gateway has made sure that it is a web address, and no shell is involved.
            webbrowser.open(url)
            answer = callback.wait(state)
        finished = client.post(f"{path}/finish", {**check_callback(answer, state), **shared})
    connection.output.show(finished, render.render_login(finished))


@command(servers.app, "logout")
def log_out(server_id: IdArgument, connection: GatewayConnection, *, is_shared: SharedOption = False) -> None:
    """Have the gateway forget the token of a login, and the authorization server revoke it."""
    with connection.open() as client:
        answer = client.delete_path(build_login_path(server_id), {"shared": "true"} if is_shared else None)
    connection.output.show(answer, render.render_logout(answer))


@command(servers.app, "tools")
def list_tools(
    server_id: IdArgument,
    connection: GatewayConnection,
    task: Annotated[str | None, Option("--task", help="As this task sees them.")] = None,
) -> None:
    """List a server's tools with their exposed names, and why one is quarantined or hidden."""
    with connection.open() as client:
        path = f"{build_record_path('server', server_id)}/tools"
        answer = client.get(path, {"task": task} if task else None)
    shown = render.render_server_tools(answer)
    connection.output.show([*answer["tools"], *answer.get("others", ())], shown)


@command(servers.app, "export")
def export_server(server_id: IdArgument, connection: GatewayConnection) -> None:
    """Print a server as a `server.json`, to be published elsewhere. Secrets are left to be filled in."""
    path = f"{build_record_path('server', server_id)}/server.json"
    connection.print_answer(path, render.render_server_json)


@command(servers.app, "import")
def import_servers(
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
    is_dry_run: DryRunOption = False,
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
    conditions = WriteConditions(plan_id=plan_id)
    with connection.open() as client:
        answer = client.post(f"{COLLECTIONS['server']}/import", body, conditions=conditions)
    connection.output.show(answer, render_imported(answer, is_dry_run=is_dry_run))


servers.add_past("history", "diff", "rollback")

upstreams = RecordGroup(
    app,
    "chat-upstreams",
    "chat_upstream",
    "Chat upstreams: the OpenAI-compatible endpoints whose models the chat endpoint prompts.",
)
upstreams.add_list("List the chat upstreams with their models.", render_upstreams.render_chat_upstreams)
upstreams.add_show(
    "show", "Show one chat upstream in full. Secrets are masked.", render_upstreams.render_chat_upstream
)
upstreams.add_apply(
    "Create or replace chat upstreams from files.\n\n"
    "`toolgate chat-upstreams test -f FILE` asks one for its models beforehand."
)
upstreams.add_delete("Remove a chat upstream. Its models are no longer offered.")


@command(upstreams.app, "test")
def try_upstream(
    connection: GatewayConnection,
    upstream_id: IdOrNone = None,
    file: Annotated[
        Path | None, Option("--file", "-f", help="Try the one in this file instead, before it is saved.")
    ] = None,
) -> None:
    """Ask a chat upstream once for its models; exit code 1 if that fails.

    One in a file must be valid; it is not saved. No model is prompted.
    """
    tried, draft = _choose_record("chat_upstream", upstream_id, file)
    with connection.open() as client:
        report = client.post(f"{build_record_path('chat_upstream', tried)}/test", draft)
    connection.output.show(report, render_upstreams.render_chat_trial(tried, report))
    if not report["ok"]:
        raise typer.Exit(ExitCode.FAILED)


upstreams.add_past("history", "diff", "rollback")
