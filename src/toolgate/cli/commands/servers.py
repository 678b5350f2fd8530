"""`toolgate servers` and `toolgate chat-upstreams`: what the gateway connects to.

After a login the browser is redirected to a listener here, which takes one response, on loopback only.
"""

import time
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlsplit

import typer
from rich.console import Group, RenderableType

from toolgate.cli.command import CommandError, DryRunOption, ExitCode, UsageError, command
from toolgate.cli.files import load_record, read_text
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import PlanOption, RecordGroup, RecordViews, ServerArgument, id_argument
from toolgate.cli.render import layout as ui
from toolgate.cli.render import servers as render
from toolgate.cli.render.changes import render_imported
from toolgate.cli.rest import COLLECTIONS, START_TIMEOUT, build_conditions, build_path, build_record_path
from toolgate.cli.server_add import add_server
from toolgate.model.revisions import Kind, describe_kind

_LOGINS: Final = "/api/v1/mcp/servers"
_IMPORTED: Final = (
    "`mcpServers` JSON, VS Code's `mcp.json`, a `server.json`, Docker's catalog, or a record of Toolgate."
)
SharedOption = Annotated[
    bool, "--shared", "Use the shared login that lists the tools, where each principal has a login."
]

app = typer.Typer(add_completion=False)

servers = RecordGroup(
    app,
    "server",
    RecordViews(many=render.render_servers, one=render.render_server),
    summaries={
        "list": "List the servers with their state, tools and problems.",
        "get": "Show one server in full. Secrets are masked.",
        "apply": (
            "Create or replace servers from files.\n\n"
            "`toolgate plan -f FILE` shows beforehand what that does to each task."
        ),
        "delete": "Delete a server. Its connection is closed and its tools leave every scope.",
    },
)

command(servers.app, "add")(add_server)


def _add_test(
    group: RecordGroup,
    kind: Kind,
    render_report: Callable[[str, Any], RenderableType],
    summary: str,
    **more: Any,
) -> None:
    """The command `test`, for a record at the gateway or one in a file. `more` goes with the request."""
    noun = "server record" if kind == "server" else describe_kind(kind)

    @command(group.app, "test", f"{summary}\n\nExit code 1 if that fails.")
    def try_record(
        connection: GatewayConnection,
        record_id: Annotated[str | None, id_argument(kind)] = None,
        file: Annotated[
            Path | None, "--file -f", f"Test the {noun} in this file instead. It is not saved."
        ] = None,
    ) -> None:
        if (record_id is None) == (file is None):
            raise UsageError("give either an id or --file, not both or neither")
        draft = None if file is None else load_record(file, kind=kind)
        tried, body = (str(record_id), None) if draft is None else (draft.id, draft.body)
        path = build_record_path(kind, tried, "test")
        report = connection.send("POST", path, partial(render_report, tried), body, **more)
        if not report["ok"]:
            raise typer.Exit(ExitCode.FAILED)


# It may be downloaded first.
_add_test(
    servers,
    "server",
    render.render_test,
    "Connect to a server once and list its tools.",
    timeout=START_TIMEOUT,
)


@command(servers.app, "refresh")
def refresh_server(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """List a server's tools again, now."""
    connection.send("POST", build_record_path("server", server_id, "refresh"), render.render_refreshed)


@command(servers.app, "login")
def log_in(
    server_id: ServerArgument,
    connection: GatewayConnection,
    *,
    is_pasted: Annotated[
        bool, "--paste", "Prompt for the final address of a browser on another machine."
    ] = False,
    is_shared: SharedOption = False,
    scopes: Annotated[
        list[str] | None, "--scope", "OAuth scope to request in addition to earlier ones. Repeatable."
    ] = None,
) -> None:
    """Log in to a server by OAuth in the browser, for the gateway to use.

    The server's record needs `http.oauth` with the grant `authorization_code`. With `per_principal`, the
    login serves your own calls. Without it, the login serves all callers and needs the role `admin`.
    """
    path, shared = build_path(_LOGINS, server_id, "login"), {"shared": True} if is_shared else {}
    with connection.open() as client, LoginCallbackServer() as callback:
        requested = {"scopes": scopes} if scopes else {}
        begun = client.post(path, {"redirect_uri": callback.url, **requested, **shared})
        url, state = str(begun["authorization_url"]), str(begun["state"])
        typer.echo(f"open this address and log in:\n{ui.escape_line(url)}", err=True)
        if is_pasted:
            response = _parse_callback(typer.prompt("final address of the browser", err=True))
        else:
            # The gateway has made sure that it is a web address, and no shell is involved.
            webbrowser.open(url)
            response = callback.wait(state)
        finished = client.post(f"{path}/finish", {**_check_callback(response, state), **shared})
    connection.show(finished, render.render_login(finished))


CALLBACK_PATH: Final = "/callback"
WAIT_S: Final = 300.0  # time for a second factor; the gateway forgets a login after 600 s
_GOODBYE: Final = b"Toolgate has what it needs. You can close this window.\n"
_MAX_FIELDS: Final = 16  # OAuth defines five (`code`, `state`, `iss`, two of an error)


class LoginCallbackServer(HTTPServer):
    """A listener on a free port of this machine that waits for one browser."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _LoginCallback)
        self.responses: list[Mapping[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}{CALLBACK_PATH}"

    def wait(self, state: str, clock_s: Callable[[], float] = time.monotonic) -> Mapping[str, str]:
        """The parameters of the browser's redirect. Redirects of other logins are ignored."""
        until_s = clock_s() + WAIT_S
        while clock_s() < until_s:
            self.timeout = max(0.0, until_s - clock_s())
            self.handle_request()
            for response in self.responses:
                if response.get("state") == state:
                    return response
            self.responses.clear()
        hint = "start again; if the browser runs elsewhere, add --paste"
        raise CommandError(f"no callback from the browser within {WAIT_S / 60:.0f} minutes", hint=hint)


class _LoginCallback(BaseHTTPRequestHandler):
    server: LoginCallbackServer
    timeout = 5  # seconds; a browser that opens a connection ahead and sends nothing must not block us

    def do_GET(self) -> None:
        is_answer = urlsplit(self.path).path == CALLBACK_PATH
        if is_answer:
            self.server.responses.append(_parse_callback(self.path))
        self.send_response(200 if is_answer else 404)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(_GOODBYE if is_answer else b"")

    def log_message(self, *_args: object) -> None:
        """Nothing: the address contains a code, which must not be written anywhere."""


def _parse_callback(address: str) -> Mapping[str, str]:
    """The fields of the browser's final address."""
    try:
        return dict(parse_qsl(urlsplit(address.strip()).query, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return {}


def _check_callback(response: Mapping[str, str], state: str) -> Mapping[str, str]:
    """The fields that the gateway needs. Raises CommandError if the login was refused."""
    if response.get("state") != state:
        hint = "paste the whole final address of the browser"
        raise UsageError("the address does not belong to this login", hint=hint)
    if "code" not in response:
        raise CommandError(f"the authorization server refused: {response.get('error', 'no code')}")
    return {name: response[name] for name in ("state", "code", "iss") if name in response}


@command(servers.app, "logout")
def log_out(
    server_id: ServerArgument, connection: GatewayConnection, *, is_shared: SharedOption = False
) -> None:
    """Delete the token of a login, and revoke it at its authorization server."""
    query = {"shared": "true" if is_shared else None}
    path = build_path(_LOGINS, server_id, "login")
    connection.send("DELETE", path, render.render_logout, query=query)


@command(servers.app, "tools")
def list_tools(
    server_id: ServerArgument,
    connection: GatewayConnection,
    task: Annotated[str | None, "Task id: show the tools as this task sees them."] = None,
) -> None:
    """List a server's tools, and why one is quarantined or hidden."""
    response = connection.get(build_record_path("server", server_id, "tools"), {"task": task or None})
    shown = render.render_server_tools(response)
    connection.show([*response["tools"], *response.get("others", ())], shown)


@command(servers.app, "export")
def export_server(server_id: ServerArgument, connection: GatewayConnection) -> None:
    """Print a server as a `server.json` for other programs. Secrets become placeholders."""
    path = build_record_path("server", server_id, "server.json")
    # Redirected to a file as it is: indented, and never wrapped.
    connection.print_result(path, lambda response: Group(ui.unwrapped(ui.encode_json(response, indent=2))))


@command(servers.app, "import")
def import_servers(
    file: Annotated[Path, "FILE", _IMPORTED],
    connection: GatewayConnection,
    *,
    allow: Annotated[
        list[str] | None,
        "--allow PATTERN",
        "Tools to allow where the file lists none, `*` for all. Repeatable.",
    ] = None,
    is_dry_run: DryRunOption = False,
    plan_id: PlanOption = None,
) -> None:
    """Register the servers of another program's configuration, all or none.

    A new server exposes no tools until `allowed_tools` allows them: give --allow, or edit the records.
    """
    if file.suffix.lower() == ".mcpb":
        hint = f"install it: `toolgate packages install {file}`"
        raise UsageError(f"`{file}` is a bundle, which contains the program itself", hint=hint)
    given = {"format": "auto", "content": read_text(file)}
    connection.send(
        "POST",
        f"{COLLECTIONS['server']}/import",
        partial(render_imported, is_dry_run=is_dry_run),
        {**given, "allowed_tools": allow or [], "dry_run": is_dry_run},
        headers=build_conditions(plan_id=plan_id),
    )


upstreams = RecordGroup(
    app,
    "chat_upstream",
    RecordViews(many=render.render_chat_upstreams, one=render.render_chat_upstream),
    summaries={
        "list": "List the chat upstreams with their models.",
        "get": "Show one chat upstream in full. Secrets are masked.",
        "apply": (
            "Create or replace chat upstreams from files.\n\n"
            "`toolgate chat-upstreams test -f FILE` lists the models of one beforehand."
        ),
        "delete": "Delete a chat upstream. Its models are no longer offered.",
    },
)


_add_test(
    upstreams,
    "chat_upstream",
    render.render_chat_trial,
    "List the models of a chat upstream once. No model is prompted.",
)
