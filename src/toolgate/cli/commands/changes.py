"""`toolgate plan`, `apply`, `diff`, `reload` and `watch`: changes of the registry, all or none."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option

from toolgate.cli.command import CommandError, DryRunOption, ExitCode, UsageError, command, open_console
from toolgate.cli.files import ID_FIELDS, FileRecord, hash_modules, load_records, send_modules, write_json
from toolgate.cli.options import GatewayConnection
from toolgate.cli.record_commands import PlanOption
from toolgate.cli.render import changes as render
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import RestClient, parse_error
from toolgate.model.revisions import describe_kind
from toolgate.registry.files.directory import find_line

APPLY: Final = "/admin/api/apply"
PLAN: Final = "/admin/api/plan"

ChangeFilesOption = Annotated[
    list[Path],
    "--file -f",
    "TOML or JSON file, or a directory of them; `-` reads JSON from standard input. Repeatable.",
]
PruneOption = Annotated[
    bool, "--prune", "Also delete servers, tasks, profiles and chat upstreams that are not in the files."
]


def build_change_set(
    records: Iterable[FileRecord], *, deletes: Iterable[str] = (), prune: bool = False
) -> dict[str, Any]:
    """The body of a plan: records to write, and names of records (`task/review`) to delete."""
    writes = [{"kind": one.kind, "id": one.id, "body": one.body} for one in records]
    return {"changes": [*writes, *map(_parse_removal, deletes)], "prune": prune}


def post_changes(
    client: RestClient, path: str, body: JsonObject, records: Iterable[FileRecord]
) -> JsonObject:
    """The gateway's response. An error about a record names its file and line."""
    try:
        return client.post(path, body)
    except CommandError as failure:
        named = (failure.data.get("kind"), failure.data.get("id"))
        record = next((one for one in records if (one.kind, one.id) == named), None)
        if record is None:
            raise
        line = find_line(record.text, failure.data.get("problems", ()))
        where = f"{record.file}:{line}" if line else f"{record.file}"
        raise CommandError(
            f"{where}: {failure}", hint=failure.hint, code=failure.code, exit_code=failure.exit_code
        ) from None


def _parse_removal(name: str) -> dict[str, Any]:
    word, slash, record_id = name.partition("/")
    kind = word.replace("-", "_")
    if kind not in ID_FIELDS or not slash:
        hint = "write `server/ID`, `task/ID`, `profile/ID` or `chat-upstream/ID`"
        raise UsageError(f"invalid record name `{name}`", hint=hint)
    return {"kind": kind, "id": record_id, "body": None}


app = typer.Typer(add_completion=False)


@command(app, "plan")
def plan_command(
    connection: GatewayConnection,
    *,
    files: Annotated[
        list[Path] | None, "--file -f", "File or directory of records, as in `toolgate apply`. Repeatable."
    ] = None,
    deletes: Annotated[
        list[str] | None, "--delete RECORD", "Record to delete: `server/ID`, `task/ID`. Repeatable."
    ] = None,
    prune: PruneOption = False,
    out: Annotated[Path | None, "--out FILE", "Also write the plan to this file, as JSON."] = None,
) -> None:
    """Show what changes would do to records and tasks.

    It lists the records that would change and the tools that each task would gain and lose. Nothing is
    written. `toolgate apply --require-plan PLAN` applies the files only if the effect is still that of the
    plan with this id.
    """
    if not files and not deletes:
        raise UsageError("there is nothing to plan", hint="give --file or --delete")
    if prune and not files:
        raise UsageError("--prune needs --file", hint="give all files of the registry")
    records, _ = hash_modules(load_records(files) if files else [])
    body = build_change_set(records, deletes=deletes or (), prune=prune)
    with connection.open() as client:
        response = post_changes(client, PLAN, body, records)
    if out is not None:
        write_json(out, response)
    words = [word for file in files or () for word in ("-f", str(file))]
    again = ["apply", *words, *(["--prune"] if prune else [])]
    connection.show(response, render.render_plan(response, None if deletes else again))


@command(app, "apply")
def apply_command(
    files: ChangeFilesOption,
    connection: GatewayConnection,
    *,
    prune: PruneOption = False,
    plan_id: PlanOption = None,
    is_dry_run: DryRunOption = False,
    is_sure: Annotated[bool, "--yes -y", "Delete with --prune without confirmation."] = False,
) -> None:
    """Create or replace records from files, all or none.

    Files contain servers, tasks, profiles, pins and chat upstreams. Unchanged records are skipped, so
    applying twice changes nothing. Without --prune, nothing is deleted.
    """
    records, modules = hash_modules(load_records(files))
    body = build_change_set(records, prune=prune)
    with connection.open() as client:
        if is_dry_run:
            response = post_changes(client, PLAN, body, records)
            connection.show(response, render.render_difference(response))
            return
        if prune and not is_sure and plan_id is None:
            plan_id = _confirm_removals(client, body, records)
        send_modules(client, modules, as_json=connection.as_json)
        response = post_changes(client, APPLY, {**body, "plan": plan_id}, records)
    connection.show(response, render.render_change_set(response))


def _confirm_removals(client: RestClient, body: JsonObject, records: Sequence[FileRecord]) -> str:
    """The id of the plan whose deletions were confirmed: nothing else may be deleted."""
    plan = post_changes(client, PLAN, body, records)
    removed = [one for one in plan["changes"] if one["operation"] == "removed"]
    if not removed:
        return str(plan["id"])
    if not sys.stdin.isatty():
        names = ", ".join(f"{describe_kind(one['kind'])} `{one['id']}`" for one in removed[:5])
        more = f" and {len(removed) - 5} more" if len(removed) > 5 else ""
        raise UsageError(
            f"--prune would delete {names}{more}, and there is no terminal to confirm it",
            hint="check with `toolgate diff --prune`, then add --yes or --require-plan",
        )
    open_console(to_stderr=True).print(render.render_removals(removed))
    if not typer.confirm("Delete them?", err=True):
        raise CommandError("nothing was changed")
    return str(plan["id"])


@command(app, "diff")
def diff_command(
    files: ChangeFilesOption, connection: GatewayConnection, *, prune: PruneOption = False
) -> None:
    """Show what `toolgate apply` would change.

    Exit code 0: no difference. 1: a difference. 2 or more: the comparison failed.
    """
    records, _ = hash_modules(load_records(files))
    try:
        with connection.open() as client:
            response = post_changes(client, PLAN, build_change_set(records, prune=prune), records)
    except CommandError as failure:
        # 1 means a difference here, so a failure must not use it.
        failure.exit_code = max(failure.exit_code, ExitCode.USAGE)
        raise
    connection.show(response["changes"], render.render_difference(response))
    if response["changes"]:
        raise typer.Exit(ExitCode.FAILED)


@command(app, "reload")
def reload_command(
    connection: GatewayConnection,
    *,
    is_dry_run: DryRunOption = False,
) -> None:
    """Read the directory of server files again.

    Exit code 1 if one of the files is invalid.
    """
    query = {"dry_run": "true" if is_dry_run else None}
    shown = partial(render.render_reload, is_dry_run=is_dry_run)
    response = connection.send("POST", "/admin/api/registry/reload", shown, query=query)
    if response.get("problems"):
        raise typer.Exit(ExitCode.FAILED)


@command(app, "watch")
def watch_command(
    connection: GatewayConnection,
    *,
    since: Annotated[
        int | None,
        Option(min=0, metavar="REVISION", help="Start after this revision. Default: with the next change."),
    ] = None,
    kinds: Annotated[
        str | None, "--kinds KINDS", "Only these kinds: `server,task`. Default: all in your scope."
    ] = None,
) -> None:
    """Print each change of the registry as it happens.

    Each transaction is one line. Ctrl-C ends the command.
    """
    hint = ""
    with suppress(KeyboardInterrupt), connection.open() as client:
        for name, data in client.events("/admin/api/watch", {"since": since, "kinds": kinds}):
            if name == "error":
                failure = parse_error(data)
                failure.hint = hint or failure.hint
                raise failure
            if "revision" in data:
                hint = f"continue with `toolgate watch --since {data['revision']}`"
            if connection.as_json or name == "change":
                connection.show({"event": name, **data}, render.render_change(data), is_line=True)
        raise CommandError("the gateway ended the stream", hint=hint, code="stream_ended")
