"""`toolgate skill`: whether a skill can run here, the URL it runs at, and the task that holds its scope."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from toolgate.catalog.clients import PROGRAMS, Door
from toolgate.catalog.naming import door_name
from toolgate.catalog.skills import Skill, parse_skill
from toolgate.cli.change_sets import APPLY, PLAN, change_set, post_changes
from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.files.records import Record, load_object
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import Connection
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render.plans import render_plan
from toolgate.cli.render.skills import render_applied_skill, render_skill, render_url
from toolgate.errors import InvalidRecord
from toolgate.model.effects import read_effects
from toolgate.model.names import ToolRef
from toolgate.policy.patterns import Patterns
from toolgate.surfaces.rest.links import door_url

MAX_URL_CHARS: Final = 4_000
"""Longer ones are cut or refused by one program or another between an agent and a gateway."""
TOOLS_A_REQUEST: Final = 100

Json = Mapping[str, Any]

FileArgument = Annotated[
    Path, Argument(help="The skill's manifest, TOML or JSON; `-` reads JSON.", show_default=False)
]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Skills: the tools in a manifest, checked, as a URL or a task.",
)


@app.command("check")
@spread_options
def check_command(file: FileArgument, connection: Connection) -> None:
    """Say of each tool of a skill whether you can call it, or why not, and what its definitions cost.

    Exit code 1 if one of them cannot be called.
    """
    skill = _load_skill(file)
    with connection.open() as client:
        explained = client.get("/api/v1/mcp/explain")
        prices = _prices(client, skill)
    tools = [_look_up(ref, explained, prices["prices"]) for ref in skill.tools]
    answer = {"skill": skill.skill_id, "tools": tools, **{key: prices[key] for key in _SUMS}}
    connection.output.show(answer, render_skill(answer))
    if any(one["state"] != "callable" for one in tools):
        raise typer.Exit(Exit.FAILED)


@app.command("url")
@spread_options
def url_command(file: FileArgument, connection: Connection) -> None:
    """Print the URL at which a skill sees exactly its tools; with --json, also an entry for a client."""
    skill = _load_skill(file)
    url = door_url(connection.url, {"tools": skill.selection})
    if len(url) > MAX_URL_CHARS:
        raise CommandFailed(
            f"the URL of `{skill.skill_id}` would have {len(url):,} characters: not every client takes that",
            hint=f"make a task of it with `toolgate skill apply {shlex.quote(str(file))}`, and use "
            f"`{door_url(connection.url, {'task': skill.skill_id})}`",
        )
    door = Door(name=skill.skill_id, url=url, needs_key=connection.load_key() is not None)
    shown = {"skill": skill.skill_id, "url": url, "config": PROGRAMS["generic"].document(door)}
    connection.output.show(shown, render_url(url))


@app.command("apply")
@spread_options
def apply_command(
    file: FileArgument,
    connection: Connection,
    *,
    plan_id: PlanOption = None,
    is_dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; change nothing.")] = False,
) -> None:
    """Make the task of a skill: of its id, with its servers and tools and no others.

    Applying the same skill again changes nothing.
    """
    skill = _load_skill(file)
    record = Record("task", skill.skill_id, skill.task(), file)
    body = change_set([record])
    with connection.open() as client:
        if is_dry_run:
            answer = post_changes(client, PLAN, body, [record])
            connection.output.show(answer, render_plan(answer, ["skill", "apply", str(file)]))
            return
        answer = post_changes(client, APPLY, {**body, "plan": plan_id}, [record])
    url = door_url(connection.url, {"task": skill.skill_id})
    connection.output.show({**answer, "url": url}, render_applied_skill(answer, url))


def _load_skill(file: Path) -> Skill:
    try:
        return parse_skill(load_object(file))
    except InvalidRecord as exc:
        raise CommandFailed(
            f"`{file}`: {exc}", hint=exc.hint, code=exc.code, exit_code=Exit.USAGE, data=exc.data
        ) from exc


_SUMS: Final = ("tokens", "registered_tools", "registered_tokens")


def _prices(client: RestClient, skill: Skill) -> dict[str, Any]:
    """What the skill's tools cost. A long list is asked for in parts: a query has limits."""
    total: dict[str, Any] = {"prices": {}, **dict.fromkeys(_SUMS, 0)}
    for part in _parts(skill.tools) if skill.tools else [()]:
        found = client.get("/api/v1/mcp/scope", {"tools": ",".join(map(door_name, part))})
        total |= {key: found[key] for key in _SUMS}
        total["prices"] |= found["prices"]
    return {**total, "tokens": sum(total["prices"].values())}


def _parts(tools: Sequence[ToolRef]) -> Iterator[Sequence[ToolRef]]:
    for at in range(0, len(tools), TOOLS_A_REQUEST):
        yield tools[at : at + TOOLS_A_REQUEST]


def _speaks_of(pattern: Patterns, decision: Json) -> bool:
    ref, effects = ToolRef(decision["server_id"], decision["tool"]), read_effects(decision.get("hints") or {})
    return pattern.first_match(ref, effects=effects, is_deny=False) is not None


def _look_up(ref: ToolRef, explained: Json, prices: Mapping[str, int]) -> dict[str, Any]:
    """What became of one entry of the manifest, which may be a pattern."""
    pattern = Patterns.of((str(ref),))
    known: Sequence[Json] = [one for one in explained["tools"] if one["server_id"] == ref.server_id]
    found = [one for one in known if _speaks_of(pattern, one)]
    servers = [one for one in explained["servers"] if one["server_id"] == ref.server_id]
    shown: dict[str, Any] = {"name": door_name(ref), "tokens": 0, "because": None, "nearest": []}
    if callable_ones := [one for one in found if one["allowed"]]:
        names = [door_name(ToolRef(one["server_id"], one["tool"])) for one in callable_ones]
        return {**shown, "state": "callable", "tokens": sum(prices.get(name, 0) for name in names)}
    if because := next(iter((*found, *servers)), None):
        return {**shown, "state": "hidden", "because": because}
    if ref.server_id in explained.get("pending", ()):
        return {**shown, "state": "unlisted"}
    return {**shown, "state": "missing", "nearest": _nearest(ref, explained["tools"])}


def _nearest(ref: ToolRef, known: Sequence[Json]) -> list[str]:
    names = [door_name(ToolRef(one["server_id"], one["tool"])) for one in known]
    return get_close_matches(door_name(ref), names, n=3)
