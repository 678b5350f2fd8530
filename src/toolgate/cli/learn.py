"""`toolgate learn`: the least policy that lets a task have what it used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from toolgate.cli.change_sets import APPLY
from toolgate.cli.client.rest import build_record_path
from toolgate.cli.failure import CommandError
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection, SinceOption, parse_time
from toolgate.cli.output import write_json
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render.changes import render_change_set
from toolgate.cli.render.layout import stack_parts
from toolgate.cli.render.learning import render_lesson

app = typer.Typer(add_completion=False)


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


@app.command("learn")
@spread_options
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
