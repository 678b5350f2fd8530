"""`toolgate profiles`: reusable selections of servers and tools, and the rollout of their next versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option

from toolgate.cli.command import DryRunOption, UsageError, command, drop_unset
from toolgate.cli.files import load_object
from toolgate.cli.options import GatewayConnection, SinceOption, parse_time
from toolgate.cli.record_commands import ConditionOptions, IdArgument, RecordGroup, roll_back
from toolgate.cli.render.changes import render_applied, render_plan
from toolgate.cli.render.records import render_profiles, render_versions
from toolgate.cli.rest import RestClient, build_conditions, build_record_path

app = typer.Typer(add_completion=False)
Body = Mapping[str, Any]
_LISTS: Final = ("servers", "tags", "allow", "deny")
_SELECTION: Final = (*_LISTS, "environments")


profiles = RecordGroup(app, "profile")
profiles.add_list("List the profiles with what they select.", render_profiles)
profiles.add_apply("Create or replace profiles from files.")
profiles.add_delete("Remove a profile. Tasks that name it then see no tools.")


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """What the next version selects: a file, or lists that replace those of the profile as it is."""

    file: Annotated[
        Path | None, "--file -f", "File with the next version: the lists and `environments` of a profile."
    ] = None
    servers: Annotated[list[str] | None, "--server", "A server. May be repeated."] = None
    tags: Annotated[list[str] | None, "--tag", "A tag of servers. May be repeated."] = None
    allow: Annotated[list[str] | None, "A pattern to allow. May be repeated."] = None
    deny: Annotated[list[str] | None, "A pattern to deny. May be repeated."] = None
    by: Annotated[str | None, "Divide each `caller` or each `task`. Default: `caller`."] = None

    @property
    def words(self) -> list[str]:
        """The same on a command line."""
        options = {"--server": self.servers, "--tag": self.tags, "--allow": self.allow, "--deny": self.deny}
        words = [word for option, values in options.items() for one in values or () for word in (option, one)]
        file = [] if self.file is None else ["--file", str(self.file)]
        return [*file, *words, *([] if self.by is None else ["--by", self.by])]

    def selection(self, stable: Body) -> dict[str, Any] | None:
        """The next version, or None where nothing says it."""
        given = {name: value for name in _LISTS if (value := getattr(self, name))}
        if self.file is None and not given:
            return None
        known = drop_unset(stable) if self.file is None else load_object(self.file)
        return {name: known[name] for name in _SELECTION if name in known} | given


@command(profiles.app, "rollout")
def rollout_command(
    profile_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    candidate: CandidateOptions,
    *,
    share: Annotated[int, Option(min=1, max=100, help="Percent that have it.", show_default=False)],
    is_dry_run: DryRunOption = False,
) -> None:
    """Give the next version of a profile to a share of callers or tasks, or change that share.

    \b
    toolgate profiles rollout review -f next.toml --share 10
    toolgate profiles rollout review --share 50
    toolgate profiles promote review
    """
    with connection.open() as client:
        profile = client.get(build_record_path("profile", profile_id))
        rollout = _next_rollout(client, profile, candidate.selection(profile))
        body = {**profile, "rollout": {**rollout, "share": share, **drop_unset({"by": candidate.by})}}
    words = ["rollout", profile_id, *candidate.words, "--share", str(share)]
    _write_profile(body, connection, conditions, words if is_dry_run else None)


@command(profiles.app, "promote")
def promote_command(
    profile_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    is_dry_run: DryRunOption = False,
) -> None:
    """End a rollout: every caller has the next version from now on."""
    with connection.open() as client:
        profile = client.get(build_record_path("profile", profile_id))
    rollout = _require_rollout(profile)
    selection = {name: rollout[name] for name in _SELECTION if name in rollout}
    body = {"profile_id": profile_id, "revision": profile["revision"], "version": rollout["version"]}
    words = ["promote", profile_id] if is_dry_run else None
    _write_profile({**body, **selection}, connection, conditions, words)


@command(profiles.app, "rollback")
def rollback_command(
    profile_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    to: Annotated[
        int | None, Option(min=0, help="Also of a finished one: the revision to go back to.")
    ] = None,
    is_dry_run: DryRunOption = False,
) -> None:
    """End a rollout: every caller has the version from before it. With --to: make it what it was.

    That is a new change; history is never rewritten.
    """
    if to is not None:
        roll_back("profile", profile_id, connection, conditions, to=to)
        return
    with connection.open() as client:
        profile = client.get(build_record_path("profile", profile_id))
    _require_rollout(profile)
    body = {name: value for name, value in profile.items() if name != "rollout"}
    _write_profile(body, connection, conditions, ["rollback", profile_id] if is_dry_run else None)


@command(profiles.app, "compare")
def compare_command(
    profile_id: IdArgument, connection: GatewayConnection, *, since: SinceOption = "24h"
) -> None:
    """Compare the versions of a profile: calls, errors, denials and times, by the version that decided."""
    path = build_record_path("profile", profile_id, "versions")
    connection.print_result(path, render_versions, {"since": parse_time(since)})


def _next_rollout(client: RestClient, profile: Body, selection: Body | None) -> Body:
    """The rollout there is, or one of a version that the profile never had."""
    if selection is None:
        return _require_rollout(profile)
    path = build_record_path("profile", profile["profile_id"], "history")
    response = client.get(path, {"limit": 500})
    changed = (field for entry in response["entries"] for field in entry["fields"])
    known = [
        value
        for one in changed
        if one["field"] in {"version", "rollout.version"}
        for value in (one["before"], one["after"])
        if isinstance(value, int)
    ]
    return {**selection, "version": max(profile["version"], *known, 1) + 1}


def _require_rollout(profile: Body) -> Body:
    rollout: Body | None = profile.get("rollout")
    if rollout is None:
        hint = "begin one with `toolgate profiles rollout ID --file NEXT --share 10`"
        raise UsageError(f"profile `{profile['profile_id']}` has no rollout", hint=hint)
    return rollout


def _write_profile(
    body: Body, connection: GatewayConnection, conditions: ConditionOptions, words: list[str] | None
) -> None:
    """Store the profile, unless another has since it was read; with `words`, only show what that would do."""
    profile_id = body["profile_id"]
    sent = {name: value for name, value in body.items() if name != "revision"}
    if words is not None:
        render = partial(render_plan, command=["profiles", *words])
        whole = {"kind": "profile", "id": profile_id, "body": sent}
        connection.send("POST", "/admin/api/plan", render, whole)
        return
    revision = body["revision"] if conditions.revision is None else conditions.revision
    headers = build_conditions(revision=revision, plan_id=conditions.plan_id)
    path, render = build_record_path("profile", profile_id), partial(render_applied, "profile", profile_id)
    connection.send("PUT", path, render, sent, headers=headers)


profiles.add_history()
profiles.add_diff()
