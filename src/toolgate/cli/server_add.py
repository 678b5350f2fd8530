"""`toolgate servers add`: registers one server from a command or a URL, tried by the gateway first.

Nothing of a new server is offered unless someone says which tools: with `--allow`, or in the terminal. A
secret that is written out is pointed at, with the reference to write in its place, and never printed.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from toolgate.cli.command import CommandError, DryRunOption, UsageError, open_console
from toolgate.cli.contexts import URL_VARIABLE, url_option
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_applied, render_plan
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.servers import render_test
from toolgate.cli.rest import START_TIMEOUT, RestClient, build_conditions, build_record_path
from toolgate.errors import Conflict, ServerUnavailable
from toolgate.redaction.records import list_hidden_fields, redact_server

_HEADER: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*[=:]\s*(.*)", re.DOTALL)
"""A token of RFC 9110, and its value: `Name=value`, or `Name: value` as other programs take it."""
_REFERENCES: Final = {
    "stdio.env.": "set it in the gateway's environment, and give `--env {name}`",
    "http.headers.": "give `--header '{name}=${{ENV:NAME}}'`, with NAME in the gateway's environment",
}
_OTHER_REFERENCE: Final = "write `${ENV:NAME}` in its place, with NAME in the gateway's environment"
_CHOICES: Final[Mapping[str, Sequence[str]]] = {"read-only": ("@read_only",), "all": ("*",), "none": ()}
_PLAN: Final = "/admin/api/plan"
_SHOWN_TOOLS: Final = 50  # three lines or so; `toolgate servers tools` lists all

Words = Annotated[
    list[str] | None,
    Argument(metavar="-- COMMAND", help="The program of a local server with its arguments, after `--`."),
]


@dataclass(frozen=True, kw_only=True)
class GatewayOfServers(GatewayConnection):
    """The connection of a command whose `--url` is that of a server."""

    given_url: Annotated[
        str | None, Option("--gateway-url", envvar=URL_VARIABLE, help="Address of the gateway.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How the gateway reaches the server."""

    server_url: Annotated[str | None, "--url URL", "MCP endpoint of a remote server."] = None
    headers: Annotated[
        list[str] | None, "--header NAME=VALUE", "Header of each request to it; may be repeated."
    ] = None
    variables: Annotated[
        list[str] | None,
        "--env NAME[=VALUE]",
        "Variable of the program. Without a value: that of the gateway's environment. Repeatable.",
    ] = None
    cwd: Annotated[str | None, "Working directory of the program, on the gateway's machine."] = None

    def build_body(self, words: Sequence[str]) -> dict[str, Any]:
        """The part of the record about the server's process or endpoint. Raises UsageError."""
        if (self.server_url is None) == (not words):
            hint = "--url is the server's address here; that of the gateway is --gateway-url"
            raise UsageError("give either the command of a local server or --url", hint=hint)
        if self.server_url is not None:
            if self.variables or self.cwd:
                raise UsageError("--env and --cwd go with a command", hint="give headers with --header")
            headers = dict(map(_parse_header, self.headers or ()))
            endpoint = {"url": self.server_url, **({"headers": headers} if headers else {})}
            return {"transport": "streamable_http", "http": endpoint}
        if self.headers:
            raise UsageError("--header goes with --url", hint="give variables with --env")
        pairs = [one.partition("=") for one in self.variables or ()]
        launch: dict[str, Any] = {
            "command": words[0],
            "args": list(words[1:]),
            "env": {name: value for name, sign, value in pairs if sign},
            "env_from": [name for name, sign, _ in pairs if not sign],
            "cwd": self.cwd,
        }
        return {"transport": "stdio", "stdio": {name: value for name, value in launch.items() if value}}


@dataclass(frozen=True, kw_only=True)
class RegistrationOptions:
    """What is offered of the server, and how it is registered."""

    allow: Annotated[
        list[str] | None, "Tool, pattern or effect to offer: `*`, `get_*`, `@read_only`. Repeatable."
    ] = None
    tags: Annotated[list[str] | None, "--tag", "Tag by which tasks and profiles select it. Repeatable."] = (
        None
    )
    is_dry_run: DryRunOption = False
    replaces: Annotated[bool, "--replace", "Replace the server of this name, if there is one."] = False
    is_untested: Annotated[bool, "--no-test", "Register it without trying it first."] = False
    plan_id: PlanOption = None


def add_server(
    name: Annotated[str, Argument(help="Id of the server: lower case, the prefix of its tools.")],
    connection: GatewayOfServers,
    launch: LaunchOptions,
    registration: RegistrationOptions,
    words: Words = None,
) -> None:
    """Register a server from its command or URL, after a test.

    The gateway starts the program or calls the URL once and lists the tools. Nothing is offered unless you
    allow it with --allow, or in the terminal when asked. For secrets give references: `--env NAME` takes the
    variable from the gateway's environment, and `${ENV:NAME}` in a value refers to it.

    \b
    toolgate servers add git --allow '@read_only' -- uvx mcp-server-git -r .
    toolgate servers add docs --url https://docs.example --header 'Key=${ENV:KEY}'
    """
    body = {"server_id": name, **launch.build_body(words or ())}
    if registration.tags:
        body["tags"] = registration.tags
    warnings = list(_find_secrets(body))
    if warnings and not connection.as_json:
        open_console(to_stderr=True).print(ui.render_warnings(warnings))
    with connection.open() as client:
        revision = _find_revision(client, name, replaces=registration.replaces)
        report = None if registration.is_untested else _try_server(client, name, body)
        if report is not None and not connection.as_json:
            connection.show({}, ui.group_parts(render_test(name, report), Text()))
        if report is not None and report["error"]:
            # A person has seen the report; a program gets the reason here.
            reason = f": {report['error']}" if connection.as_json else ""
            hint = "correct the command or URL; --no-test registers it all the same"
            message = f"server `{name}` failed its test, and is not registered{reason}"
            raise CommandError(message, hint=hint)
        body["allowed_tools"] = _choose_tools(registration.allow, as_json=connection.as_json)
        done = {"server": redact_server(body), "test": report, "warnings": warnings}
        if registration.is_dry_run:
            change = {"kind": "server", "id": name, "body": body}
            plan = client.post(_PLAN, {"changes": [change], "prune": False})
            connection.show({**done, "plan": plan}, render_plan(plan, None))
            return
        conditions = build_conditions(revision=revision, plan_id=registration.plan_id)
        if revision is None:
            conditions["if-none-match"] = "*"
        response = client.send("PUT", build_record_path("server", name), body, headers=conditions)
        offered = None if report is None else _list_offered(client, name)
    warnings += response["warnings"]
    connect = f"toolgate connect claude-code --servers {name} --write{url_option(connection.url)}"
    rendered = ui.stack_parts(
        render_applied("server", name, response),
        _render_offer(body["allowed_tools"], offered, () if report is None else report["tools"]),
        ui.copyable(connect, "Connect a client:", ui.DIM) if body["allowed_tools"] else None,
    )
    connection.show({**done, **response, "warnings": warnings, "offered": offered}, rendered)


def _parse_header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise UsageError(f"`{ui.escape_line(text)}` is not NAME=VALUE", hint="write `--header NAME=VALUE`")
    return found[1], found[2]


def _find_secrets(body: JsonObject) -> Iterator[str]:
    """A warning for each value that looks like a secret: where it is, and what to write instead."""
    for field in list_hidden_fields("server", body):
        prefix = next((one for one in _REFERENCES if field.startswith(one)), "")
        better = _REFERENCES[prefix].format(name=field.removeprefix(prefix)) if prefix else _OTHER_REFERENCE
        yield f"`{field}` looks like a secret, and would be stored as it is: {better}"


def _find_revision(client: RestClient, name: str, *, replaces: bool) -> int | None:
    """The revision of the record to replace; None for a new one. Raises CommandError if it must stay."""
    found = client.find(build_record_path("server", name))
    if found is None:
        return None
    if not replaces:
        hint = "`--replace` replaces it; `toolgate servers apply -f FILE` changes it by its record"
        raise CommandError(f"server `{name}` already exists", hint=hint, code=Conflict.code)
    return int(found["revision"])


def _try_server(client: RestClient, name: str, body: JsonObject) -> dict[str, Any]:
    """What came of connecting to the server once."""
    try:
        path = build_record_path("server", name, "test")
        return client.post(path, body, timeout=START_TIMEOUT)
    except CommandError as failure:
        if failure.code != ServerUnavailable.code:
            raise
        hint = f"{failure.hint}; --no-test registers it without a test"
        raise CommandError(str(failure), hint=hint, code=failure.code) from None


def _choose_tools(allow: Sequence[str] | None, *, as_json: bool) -> list[str]:
    """The patterns of the tools to offer: those given, else what is answered in the terminal, else none."""
    if allow is not None:
        return list(allow)
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return []
    question = f"allow which of its tools? ({', '.join(_CHOICES)})"
    while True:
        choice = typer.prompt(question, default="read-only", err=True).strip()
        if choice in _CHOICES:
            return list(_CHOICES[choice])


def _list_offered(client: RestClient, name: str) -> list[str] | None:
    """The tools that callers can see now. None if the gateway cannot say yet."""
    try:
        response = client.post(build_record_path("server", name, "refresh"), timeout=START_TIMEOUT)
    except CommandError:
        return None
    return list(response["visible"])


def _render_offer(
    allowed: Sequence[str], offered: Sequence[str] | None, found: Sequence[str]
) -> RenderableType | None:
    """Which tools callers get, and how to change that."""
    if not allowed:
        how = "run this command again with `--replace --allow '@read_only'` or `--allow '*'`"
        return ui.group_parts(
            Text("no tool is offered: a new server offers only what --allow names", style=ui.WARN),
            ui.indent(Text(f"to offer tools, {how}, or fill `allowed_tools` of its record")),
        )
    if offered is None:
        return None
    count = f"offers {len(offered)} of {ui.count_of(len(found), 'tool')}"
    if not offered:
        patterns = ui.join_names(f"`{one}`" for one in allowed)
        return ui.sentence(Text(f"{count}: none matches ", style=ui.WARN), patterns)
    more = [f"and {len(offered) - _SHOWN_TOOLS} more"] if len(offered) > _SHOWN_TOOLS else []
    return ui.sentence(f"{count}: ", ui.join_names([*offered[:_SHOWN_TOOLS], *more]))
