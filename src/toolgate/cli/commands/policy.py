"""`toolgate lint`: rules that do not do what their author meant.

`toolgate learn`: the least policy that lets a task have what it used.

`toolgate unused`: what is granted and nobody uses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from toolgate.cli.client.rest import RestClient, build_record_path
from toolgate.cli.commands.changes import APPLY
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.option_groups import command
from toolgate.cli.options import GatewayConnection, SinceOption, parse_time
from toolgate.cli.output import write_json
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render.changes import render_change_set, render_lint
from toolgate.cli.render.layout import stack_parts
from toolgate.cli.render.learning import render_lesson, render_unused

app = typer.Typer(add_completion=False)


@command(app, "lint")
def lint_command(connection: GatewayConnection) -> None:
    """Find rules that match nothing, and literals in records that may be secrets.

    Exit code 0: every rule was judged, and none is wrong. 1: something was found. 5: nothing was found, and
    some rules could not be judged, because a server has not listed its tools.
    """
    with connection.open() as client:
        answer = client.get("/admin/api/lint")
    findings, unjudged = answer["findings"], answer.get("unjudged", [])
    connection.output.show([*findings, *unjudged], render_lint(findings, unjudged))
    if findings or unjudged:
        raise typer.Exit(ExitCode.FAILED if findings else ExitCode.INCOMPLETE)


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """What is learned from."""

    since: SinceOption = "7d"
    may_deny_all: Annotated[
        bool, Option("--deny-all", help="Also where nothing was used, so that nothing would be left.")
    ] = False

    @property
    def query(self) -> dict[str, str]:
        return {"since": str(parse_time(self.since)), "deny_all": "true" if self.may_deny_all else "false"}

    @property
    def words(self) -> list[str]:
        """The same on a command line."""
        return ["--since", self.since, *(["--deny-all"] if self.may_deny_all else [])]


@command(app, "learn")
def learn_command(
    task: Annotated[str, Argument(metavar="TASK", help="The task.")],
    connection: GatewayConnection,
    which: LearnOptions,
    *,
    is_applied: Annotated[bool, Option("--apply", help="Make it so, exactly as it is shown.")] = False,
    plan_id: PlanOption = None,
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Write the task as it should be here, as JSON.")
    ] = None,
) -> None:
    """Work out the least policy by what a task used: what stays, what goes, and when that was used last.

    Nothing is written without --apply. Calls of other tasks do not count.

    \b
    toolgate learn review --since 30d
    toolgate learn review --since 30d --apply
    toolgate learn review --out review.json    # to change and `apply -f`
    """
    with connection.open() as client:
        lesson = client.get(f"{build_record_path('task', task)}/learn", which.query)
        if plan_id not in {None, lesson["plan"]["id"]}:
            raise CommandError(
                "what would be learned now is not what that plan showed",
                hint="look again without --require-plan",
                code="plan_outdated",
            )
        if out is not None:
            write_json(out, lesson["record"])
        if not is_applied or not lesson["plan"]["changes"]:
            again = ["learn", task, *which.words, "--apply"]
            connection.output.show(lesson, render_lesson(lesson, again))
            return
        change = {"kind": "task", "id": task, "body": lesson["record"]}
        answer = client.post(APPLY, {"changes": [change], "plan": lesson["plan"]["id"]})
    connection.output.show(answer, stack_parts(render_lesson(lesson, None), render_change_set(answer)))


@command(app, "unused")
def unused_command(
    connection: GatewayConnection,
    *,
    since: SinceOption = "30d",
    task: Annotated[str | None, Option("--task", help="Only this task, tool by tool.")] = None,
    key: Annotated[str | None, Option("--key", help="Only this key, tool by tool.")] = None,
) -> None:
    """Show which tools tasks grant, and keys let through, that nobody used; and which servers nobody uses.

    \b
    toolgate unused --since 90d
    toolgate unused --task review
    """
    named = {"task": task, "key": key}
    query = {name: value for name, value in named.items() if value is not None}
    with connection.open() as client:
        answer = _all_pages(client, {**query, "since": str(parse_time(since))})
    connection.output.show(answer, render_unused(answer, is_one=bool(query)))


def _all_pages(client: RestClient, query: Mapping[str, str]) -> dict[str, Any]:
    """The first page, with the holders of all."""
    first: dict[str, Any] = client.get("/admin/api/unused", query)
    cursor = first["next_cursor"]
    while cursor is not None:
        page = client.get("/admin/api/unused", {**query, "cursor": cursor})
        first["holders"] += page["holders"]
        cursor = page["next_cursor"]
    return {**first, "next_cursor": None}
