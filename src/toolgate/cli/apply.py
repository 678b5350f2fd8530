"""`toolgate apply`: the registry as files say, in one transaction."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.change_sets import (
    APPLY,
    PLAN,
    ChangeFilesOption,
    PruneOption,
    build_change_set,
    post_changes,
)
from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError, ExitCode
from toolgate.cli.files.modules import hash_modules, send_modules
from toolgate.cli.files.records import FileRecord, load_records
from toolgate.cli.option_groups import spread_options
from toolgate.cli.options import GatewayConnection
from toolgate.cli.output import open_console
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render.changes import render_change_set, render_difference, render_removals
from toolgate.model.revisions import describe_kind

app = typer.Typer(add_completion=False)

JsonObject = Mapping[str, Any]


@app.command("apply")
@spread_options
def apply_command(
    files: ChangeFilesOption,
    connection: GatewayConnection,
    *,
    prune: PruneOption = False,
    plan_id: PlanOption = None,
    is_dry_run: Annotated[bool, Option("--dry-run", help="Show what would change; change nothing.")] = False,
    is_sure: Annotated[bool, Option("--yes", "-y", help="Remove without asking.")] = False,
) -> None:
    """Make servers, tasks, profiles, pins and chat upstreams what files say: all, or on any error none.

    What is so already is left alone, so applying twice changes nothing. Without --prune nothing is removed.
    """
    records, modules = hash_modules(load_records(files))
    body = build_change_set(records, prune=prune)
    with connection.open() as client:
        if is_dry_run:
            answer = post_changes(client, PLAN, body, records)
            connection.output.show(answer, render_difference(answer))
            return
        if prune and not is_sure and plan_id is None:
            plan_id = _confirm_removals(client, body, records)
        send_modules(client, modules, as_json=connection.as_json)
        answer = post_changes(client, APPLY, {**body, "plan": plan_id}, records)
    connection.output.show(answer, render_change_set(answer))


def _confirm_removals(client: RestClient, body: JsonObject, records: Sequence[FileRecord]) -> str:
    """The id of the plan whose removals were agreed to: nothing else may be removed then."""
    plan = post_changes(client, PLAN, body, records)
    removed = [one for one in plan["changes"] if one["operation"] == "removed"]
    if not removed:
        return str(plan["id"])
    if not sys.stdin.isatty():
        names = ", ".join(f"{describe_kind(one['kind'])} `{one['id']}`" for one in removed[:5])
        more = f" and {len(removed) - 5} more" if len(removed) > 5 else ""
        raise CommandError(
            f"--prune would remove {names}{more}, and there is nobody to ask",
            hint="look with `toolgate diff --prune`, then add --yes or --require-plan",
            exit_code=ExitCode.USAGE,
        )
    open_console(to_stderr=True).print(render_removals(removed))
    if not typer.confirm("Remove them?", err=True):
        raise CommandError("nothing was changed")
    return str(plan["id"])
