"""`toolgate skills`: whether a skill can run here, the URL of its tools, and the task with its scope."""

import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument

from toolgate.catalog.clients import CLIENT_PROGRAMS, GatewayEndpoint
from toolgate.catalog.naming import join_tool_name
from toolgate.catalog.skills import Skill, parse_skill
from toolgate.cli.command import CommandError, DryRunOption, ExitCode, add_group, command
from toolgate.cli.commands.changes import APPLY, PLAN, build_change_set, post_changes
from toolgate.cli.files import FileRecord, load_object
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_change_set, render_plan
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.scope import describe_saving
from toolgate.cli.rest import RestClient
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.tools import read_effects
from toolgate.policy.patterns import Patterns
from toolgate.surfaces.http.parsing import format_scope_url


def render_skill(response: JsonObject) -> RenderableType:
    """Each tool, callable or not, and the tokens of the skill."""
    tools: Sequence[JsonObject] = response["tools"]
    rows = (
        (ui.bold(tool["name"]), f"{tool['tokens']:,}" if tool["tokens"] else "-", _render_state(tool))
        for tool in tools
    )
    callable_ones = sum(tool["state"] == "callable" for tool in tools)
    mark = ui.done if callable_ones == len(tools) else ui.failed
    tail = mark(
        ui.bold(response["skill"]),
        f": {callable_ones} of {ui.count_of(len(tools), 'tool')} can be called; ",
        describe_saving(response),
    )
    return ui.stack_parts(ui.grid("TOOL", ">TOKENS", "*", rows=rows) if tools else None, tail)


def _render_state(tool: JsonObject) -> Text:
    match tool["state"]:
        case "callable":
            return Text("callable", style=ui.OK)
        case "hidden":
            why = tool["because"]
            rule = ui.sentence(" (", ui.cell(why["rule"], ui.DIM), ")") if why["rule"] else ""
            reason = ui.cell(f"{why['layer']}: {why['reason']}")
            return ui.sentence(Text("hidden", style=ui.BAD), " by ", reason, rule)
        case "unlisted":
            return Text("unknown: its server has not listed its tools", style=ui.WARN)
    missing = Text("no such tool", style=ui.BAD)
    if not tool["nearest"]:
        return missing
    return ui.sentence(missing, "; did you mean ", ui.join_names(tool["nearest"], "bold"), "?")


MAX_URL_CHARS: Final = 4_000
"""Some programs between an agent and a gateway cut or reject longer URLs."""
TOOLS_A_REQUEST: Final = 100  # with names of 64 characters, well below the 16 KiB of a query

FileArgument = Annotated[Path, Argument(help="Manifest of the skill, TOML or JSON; `-` reads JSON.")]

app = typer.Typer(add_completion=False)
skill_app = add_group(app, "skills")


@command(skill_app, "check")
def check_command(file: FileArgument, connection: GatewayConnection) -> None:
    """Show for each tool of a skill whether you can call it.

    For a tool that you cannot call, it shows why. It also shows the tokens of the definitions. Exit code 1 if
    you cannot call one of the tools.
    """
    skill = _load_skill(file)
    with connection.open() as client:
        explained = client.get("/api/v1/mcp/explain")
        prices = _price_tools(client, skill)
    tools = [_check_tool(ref, explained, prices["prices"]) for ref in skill.tools]
    response = {"skill": skill.skill_id, "tools": tools, **{key: prices[key] for key in _SUMS}}
    connection.show(response, render_skill(response))
    if any(one["state"] != "callable" for one in tools):
        raise typer.Exit(ExitCode.FAILED)


@command(skill_app, "url")
def url_command(file: FileArgument, connection: GatewayConnection) -> None:
    """Print the URL that exposes exactly the tools of a skill.

    With --json, the output also has an entry for a client.
    """
    skill = _load_skill(file)
    url = format_scope_url(connection.url, {"tools": skill.selection})
    if len(url) > MAX_URL_CHARS:
        raise CommandError(
            f"the URL of `{skill.skill_id}` would have {len(url):,} characters: too long for some clients",
            hint=f"create a task with `toolgate skills apply {shlex.quote(str(file))}`, and use "
            f"`{format_scope_url(connection.url, {'task': skill.skill_id})}`",
        )
    door = GatewayEndpoint(name=skill.skill_id, url=url, needs_key=connection.load_key() is not None)
    shown = {"skill": skill.skill_id, "url": url, "config": CLIENT_PROGRAMS["generic"].document(door)}
    # On one line, however long, to be copied.
    connection.show(shown, Group(ui.unwrapped(url)))


@command(skill_app, "apply")
def apply_command(
    file: FileArgument,
    connection: GatewayConnection,
    *,
    plan_id: PlanOption = None,
    is_dry_run: DryRunOption = False,
) -> None:
    """Create or replace the task of a skill, with exactly its tools.

    The task has the id of the skill. Applying the same skill again changes nothing.
    """
    skill = _load_skill(file)
    record = FileRecord("task", skill.skill_id, skill.task(), file)
    body = build_change_set([record])
    with connection.open() as client:
        if is_dry_run:
            response = post_changes(client, PLAN, body, [record])
            connection.show(response, render_plan(response, ["skills", "apply", str(file)]))
            return
        response = post_changes(client, APPLY, {**body, "plan": plan_id}, [record])
    url = format_scope_url(connection.url, {"task": skill.skill_id})
    rendered = ui.stack_parts(render_change_set(response), ui.sentence("at ", ui.bold(url)))
    connection.show({**response, "url": url}, rendered)


def _load_skill(file: Path) -> Skill:
    try:
        return parse_skill(load_object(file))
    except InvalidRecord as exc:
        raise CommandError(
            f"`{file}`: {exc}", hint=exc.hint, code=exc.code, exit_code=ExitCode.USAGE, data=exc.data
        ) from exc


_SUMS: Final = ("tokens", "registered_tools", "registered_tokens")


def _price_tools(client: RestClient, skill: Skill) -> dict[str, Any]:
    """The tokens of the skill's tools. A long list is requested in parts: a query has limits."""
    total: dict[str, Any] = {"prices": {}, **dict.fromkeys(_SUMS, 0)}
    for at in range(0, max(len(skill.tools), 1), TOOLS_A_REQUEST):
        part = skill.tools[at : at + TOOLS_A_REQUEST]
        found = client.get("/api/v1/mcp/scope", {"tools": ",".join(map(join_tool_name, part))})
        total |= {key: found[key] for key in _SUMS}
        total["prices"] |= found["prices"]
    return {**total, "tokens": sum(total["prices"].values())}


def _check_tool(ref: ToolRef, explained: JsonObject, prices: Mapping[str, int]) -> dict[str, Any]:
    """The state of one entry of the manifest, which may be a pattern."""
    pattern = Patterns((str(ref),))
    known = {ToolRef(one["server_id"], one["tool"]): one for one in explained["tools"]}
    found = {
        each: one
        for each, one in known.items()
        if each.server_id == ref.server_id
        and pattern.first_match(each, effects=read_effects(one.get("hints") or {}), is_deny=False) is not None
    }
    servers = [one for one in explained["servers"] if one["server_id"] == ref.server_id]
    shown: dict[str, Any] = {"name": join_tool_name(ref), "tokens": 0, "because": None, "nearest": []}
    if names := [join_tool_name(each) for each, one in found.items() if one["allowed"]]:
        return {**shown, "state": "callable", "tokens": sum(prices.get(name, 0) for name in names)}
    if because := next(iter((*found.values(), *servers)), None):
        return {**shown, "state": "hidden", "because": because}
    if ref.server_id in explained.get("pending", ()):
        return {**shown, "state": "unlisted"}
    nearest = get_close_matches(join_tool_name(ref), map(join_tool_name, known), n=3)
    return {**shown, "state": "missing", "nearest": nearest}
