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
from toolgate.cli.record_commands import ConditionOptions, RecordGroup, RecordViews, id_argument, roll_back
from toolgate.cli.render.changes import render_applied, render_plan
from toolgate.cli.render.records import render_profile, render_profiles, render_versions
from toolgate.cli.rest import RestClient, build_conditions, build_record_path

app = typer.Typer(add_completion=False)
Body = Mapping[str, Any]
_LISTS: Final = ("servers", "tags", "allow", "deny")
_SELECTION: Final = (*_LISTS, "environments")


profiles = RecordGroup(
    app,
    "profile",
    RecordViews(many=render_profiles, one=render_profile),
    summaries={
        "list": "List the profiles with what they select.",
        "get": "Show one profile, and its next version during a rollout.",
        "delete": "Delete a profile. Tasks that name it then see no tools.",
    },
    without=("rollback",),
)
ProfileArgument = Annotated[str, id_argument("profile")]


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """What the next version selects: a file, or lists that replace those of the current version."""

    file: Annotated[
        Path | None, "--file -f", "File with the next version: the lists and `environments` of a profile."
    ] = None
    servers: Annotated[list[str] | None, "--server", "Server id that it selects. Repeatable."] = None
    tags: Annotated[list[str] | None, "--tag", "Tag of servers that it selects. Repeatable."] = None
    allow: Annotated[list[str] | None, "--allow PATTERN", "Pattern of tools to allow. Repeatable."] = None
    deny: Annotated[list[str] | None, "--deny PATTERN", "Pattern of tools to deny. Repeatable."] = None
    by: Annotated[str | None, "--by caller|task", "Divide callers or tasks. Default: callers."] = None

    @property
    def words(self) -> list[str]:
        """These options on a command line."""
        options = {"--server": self.servers, "--tag": self.tags, "--allow": self.allow, "--deny": self.deny}
        words = [word for option, values in options.items() for one in values or () for word in (option, one)]
        file = [] if self.file is None else ["--file", str(self.file)]
        return [*file, *words, *([] if self.by is None else ["--by", self.by])]

    def selection(self, stable: Body) -> dict[str, Any] | None:
        """The next version; None if no option describes it."""
        given = {name: value for name in _LISTS if (value := getattr(self, name))}
        if self.file is None and not given:
            return None
        known = drop_unset(stable) if self.file is None else load_object(self.file)
        return {name: known[name] for name in _SELECTION if name in known} | given


@command(profiles.app, "rollout")
def rollout_command(
    profile_id: ProfileArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    candidate: CandidateOptions,
    *,
    share: Annotated[
        int, Option(min=1, max=100, metavar="PERCENT", help="Share that gets the next version, 1 to 100.")
    ],
    is_dry_run: DryRunOption = False,
) -> None:
    """Roll out the next version of a profile to a share of callers.

    Without the options of a version, the command changes the share of the current rollout.

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
    profile_id: ProfileArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    is_dry_run: DryRunOption = False,
) -> None:
    """End a rollout: all callers get the next version."""
    profile = connection.get(build_record_path("profile", profile_id))
    rollout = _require_rollout(profile)
    selection = {name: rollout[name] for name in _SELECTION if name in rollout}
    body = {"profile_id": profile_id, "revision": profile["revision"], "version": rollout["version"]}
    words = ["promote", profile_id] if is_dry_run else None
    _write_profile({**body, **selection}, connection, conditions, words)


@command(profiles.app, "rollback")
def rollback_command(
    profile_id: ProfileArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    to: Annotated[
        int | None,
        Option(min=0, metavar="REVISION", help="Restore the profile as of this revision, as in `history`."),
    ] = None,
    is_dry_run: DryRunOption = False,
) -> None:
    """End a rollout: all callers get the version from before it.

    With --to, the command restores the profile as it was at a registry revision. The restored record is a new
    revision: history is never rewritten.
    """
    if to is not None:
        roll_back("profile", profile_id, connection, conditions, to=to)
        return
    profile = connection.get(build_record_path("profile", profile_id))
    _require_rollout(profile)
    body = {name: value for name, value in profile.items() if name != "rollout"}
    _write_profile(body, connection, conditions, ["rollback", profile_id] if is_dry_run else None)


@command(profiles.app, "compare")
def compare_command(
    profile_id: ProfileArgument, connection: GatewayConnection, *, since: SinceOption = "24h"
) -> None:
    """Compare the versions of a profile by calls, errors, denials and latency."""
    path = build_record_path("profile", profile_id, "versions")
    connection.print_result(path, render_versions, {"since": parse_time(since)})


def _next_rollout(client: RestClient, profile: Body, selection: Body | None) -> Body:
    """The current rollout, or one of a version that the profile never had."""
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
        hint = "start one with `toolgate profiles rollout PROFILE --file NEXT --share 10`"
        raise UsageError(f"profile `{profile['profile_id']}` has no rollout", hint=hint)
    return rollout


def _write_profile(
    body: Body, connection: GatewayConnection, conditions: ConditionOptions, words: list[str] | None
) -> None:
    """Store the profile if it is unchanged since it was read; with `words`, only show the plan."""
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
