"""`toolgate lint`, `learn` and `unused`: rules that match nothing, and unused grants."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.command import CommandError, ExitCode, command
from toolgate.cli.commands.changes import APPLY
from toolgate.cli.files import write_json
from toolgate.cli.options import GatewayConnection, SinceOption, parse_time
from toolgate.cli.record_commands import PlanOption, TaskArgument
from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import render_change_set, render_lint, render_plan
from toolgate.cli.render.layout import JsonObject, stack_parts
from toolgate.cli.rest import build_record_path


def render_lesson(response: JsonObject, command: Sequence[str] | None) -> RenderableType:
    """Kept and removed tools, the saving, and the `command` that applies it; None: it was applied."""
    calls = f": {ui.count_of(response['calls'], 'call')} since {_render_day(response['since_ms'])}"
    plan: RenderableType | None = None
    removed: RenderableType | None = None
    if response["removed"]:
        title = Text(f"{len(response['removed']):,} unused, removed", style=f"bold {ui.BAD}")
        begins = response["audit_begins_ms"]
        note = (
            None if begins is None else f"never: not since {_render_day(begins)}, when the audit log begins"
        )
        table = _render_unused_tools(response["removed"])
        removed = ui.group_parts(title, table, None if note is None else Text(note, ui.DIM))
    if not response["plan"]["changes"]:
        plan = Text("the task already has the least policy", style=ui.OK)
    elif command is not None:
        plan = render_plan(response["plan"], command)
    return ui.stack_parts(
        ui.sentence("task ", ui.bold(response["task_id"]), calls),
        _render_kept(response["kept"]),
        removed,
        Text(f"{response['tokens_saved']:,} tokens saved in each list") if response["tokens_saved"] else None,
        ui.render_warnings(response["warnings"]),
        Text("Calls of other tasks, and of callers without one, are not counted.", style=ui.DIM),
        plan,
    )


def _render_kept(kept: Sequence[JsonObject]) -> RenderableType:
    title = Text(f"{len(kept):,} used, kept", style=f"bold {ui.OK if kept else ui.WARN}")
    table = ui.grid("NAME*", ">CALLS", "LAST USED", "")
    for one in kept:
        note = Text("would be denied", style=ui.WARN) if one["is_anew"] else ""
        table.add_row(_render_name(one), f"{one['calls']:,}", _render_day(one["last_used_ms"]), note)
    return Group(title, table) if kept else title


def _render_unused_tools(tools: Sequence[JsonObject]) -> RenderableType:
    rows = ((_render_name(one), f"{one['tokens']:,}", _render_last_use(one["last_used_ms"])) for one in tools)
    return ui.grid("NAME*", ">TOKENS", "LAST USED", rows=rows)


def render_unused(response: JsonObject, *, is_one: bool) -> RenderableType:
    """A line per task and key, or with `is_one` per tool; then unused servers."""
    holders, servers = response["holders"], response["servers"]
    rows = ((ui.bold(one["server_id"]), _render_last_use(one["last_used_ms"])) for one in servers)
    return ui.stack_parts(
        *([_render_holder(one) for one in holders] if is_one else [_render_holders(holders)]),
        ui.grid("UNUSED SERVER*", "LAST USED", rows=rows) if servers else None,
        ui.render_warnings(response["warnings"]),
        Text(f"unused since {_render_day(response['since_ms'])}", style=ui.DIM),
    )


def _render_holders(holders: Sequence[JsonObject]) -> RenderableType:
    if not holders:
        return Text("there are no tasks and no keys")
    table = ui.grid("TASK OR KEY*", ">CALLS", ">GRANTED", ">UNUSED", ">TOKENS", "LAST USED")
    for one in holders:
        table.add_row(
            ui.sentence(f"{one['kind']} ", ui.bold(one["id"])),
            *(f"{one['calls']:,}", f"{one['granted']:,}"),
            ui.cell(f"{one['unused']:,}", ui.WARN if one["unused"] else ui.OK),
            f"{one['unused_tokens']:,}",
            _render_last_use(one["last_used_ms"]),
        )
    return table


def _render_holder(holder: JsonObject) -> RenderableType:
    head = ui.sentence(
        f"{holder['kind']} ",
        ui.bold(holder["id"]),
        f": {holder['unused']:,} of {ui.count_of(holder['granted'], 'tool')} unused,",
        f" {holder['unused_tokens']:,} tokens in each list",
    )
    return ui.stack_parts(head, _render_unused_tools(holder["tools"]) if holder["tools"] else None)


def _render_name(one: JsonObject) -> Text:
    return ui.sentence(ui.cell(one["server_id"], ui.DIM), Text("/", style=ui.DIM), ui.bold(one["tool"]))


def _render_last_use(at_ms: int | None) -> Text:
    return Text("never", style=ui.WARN) if at_ms is None else ui.cell(_render_day(at_ms))


def _render_day(at_ms: int) -> str:
    return ui.render_time(at_ms, ui.DAY_FORMAT)


app = typer.Typer(add_completion=False)


@command(app, "lint")
def lint_command(connection: GatewayConnection) -> None:
    """Find rules that match nothing, and bare secrets.

    A bare secret is a literal in a record that looks like a secret. Exit code 0: all rules were checked, and
    nothing was found. 1: something was found. 5: nothing was found, but some rules could not be checked
    because a server has not listed its tools.
    """
    response = connection.get("/admin/api/lint")
    findings, unjudged = response["findings"], response.get("unjudged", [])
    connection.show([*findings, *unjudged], render_lint(findings, unjudged))
    if findings or unjudged:
        raise typer.Exit(ExitCode.FAILED if findings else ExitCode.INCOMPLETE)


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """The calls to learn from."""

    since: SinceOption = "7d"
    may_deny_all: Annotated[
        bool, "--deny-all", "Deny all tools if the task used none. Otherwise that is an error."
    ] = False

    @property
    def query(self) -> dict[str, str | int]:
        return {"since": parse_time(self.since), "deny_all": "true" if self.may_deny_all else "false"}

    @property
    def words(self) -> list[str]:
        """These options on a command line."""
        return ["--since", self.since, *(["--deny-all"] if self.may_deny_all else [])]


@command(app, "learn")
def learn_command(
    task: TaskArgument,
    connection: GatewayConnection,
    which: LearnOptions,
    *,
    is_applied: Annotated[bool, "--apply", "Apply the policy, exactly as it is shown."] = False,
    plan_id: PlanOption = None,
    out: Annotated[
        Path | None, "--out FILE", "Write the resulting task record to this file, as JSON."
    ] = None,
) -> None:
    """Work out the least policy of a task from its use.

    It lists which tools stay, which go, and when each was used last. Without --apply, nothing is changed.
    Calls of other tasks do not count.

    \b
    toolgate learn review --since 30d
    toolgate learn review --since 30d --apply
    toolgate learn review --out review.json    # edit it, then apply it
    """
    with connection.open() as client:
        lesson = client.get(build_record_path("task", task, "learn"), which.query)
        if plan_id not in {None, lesson["plan"]["id"]}:
            message = f"plan `{plan_id}` is outdated: the task would change in another way now"
            raise CommandError(message, hint="run it again without --require-plan", code="plan_outdated")
        if out is not None:
            write_json(out, lesson["record"])
        if not is_applied or not lesson["plan"]["changes"]:
            again = ["learn", task, *which.words, "--apply"]
            connection.show(lesson, render_lesson(lesson, again))
            return
        change = {"kind": "task", "id": task, "body": lesson["record"]}
        response = client.post(APPLY, {"changes": [change], "plan": lesson["plan"]["id"]})
    connection.show(response, stack_parts(render_lesson(lesson, None), render_change_set(response)))


@command(app, "unused")
def unused_command(
    connection: GatewayConnection,
    *,
    since: SinceOption = "30d",
    task: Annotated[str | None, "Task id: only this task, tool by tool."] = None,
    key: Annotated[str | None, "Key id: only this key, tool by tool."] = None,
) -> None:
    """List granted tools and servers that went unused.

    Tasks and keys are counted; with --task or --key, the tools of one are listed.

    \b
    toolgate unused --since 90d
    toolgate unused --task review
    """
    query = {"task": task, "key": key, "since": parse_time(since)}
    with connection.open() as client:
        response = client.merge_pages("/admin/api/unused", "holders", query)
    connection.show(response, render_unused(response, is_one=task is not None or key is not None))
