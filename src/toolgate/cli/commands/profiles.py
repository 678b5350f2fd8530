"""`toolgate profiles`: reusable selections of servers and tools, and the rollout of their next versions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option

from toolgate.cli.client.rest import RestClient, build_record_path
from toolgate.cli.failure import UsageError
from toolgate.cli.files.records import load_object
from toolgate.cli.option_groups import command
from toolgate.cli.options import DryRunOption, GatewayConnection, SinceOption, parse_time
from toolgate.cli.record_commands import ConditionOptions, IdArgument, RecordGroup
from toolgate.cli.render.changes import render_applied, render_plan, render_rolled_back
from toolgate.cli.render.records import render_profiles, render_versions

app = typer.Typer(add_completion=False)
Body = Mapping[str, Any]
_LISTS: Final = ("servers", "tags", "allow", "deny")
_SELECTION: Final = (*_LISTS, "environments")
_HISTORY: Final = {"limit": "500"}
_PLAN: Final = "/admin/api/plan"


profiles = RecordGroup(
    app, "profiles", "profile", "Profiles: selections of servers and tools that tasks share."
)
profiles.add_list("List the profiles with what they select.", render_profiles)
profiles.add_apply("Create or replace profiles from files.")
profiles.add_delete("Remove a profile. Tasks that name it then see no tools.")


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """What the next version selects: a file, or lists that replace those of the profile as it is."""

    file: Annotated[
        Path | None,
        Option("--file", "-f", help="File with the next version: the lists and `environments` of a profile."),
    ] = None
    servers: Annotated[list[str] | None, Option("--server", help="A server. May be repeated.")] = None
    tags: Annotated[list[str] | None, Option("--tag", help="A tag of servers. May be repeated.")] = None
    allow: Annotated[list[str] | None, Option("--allow", help="A pattern to allow. May be repeated.")] = None
    deny: Annotated[list[str] | None, Option("--deny", help="A pattern to deny. May be repeated.")] = None
    by: Annotated[
        str | None, Option("--by", help="Divide each `caller` or each `task`. Default: `caller`.")
    ] = None

    @property
    def divided(self) -> dict[str, str]:
        return {} if self.by is None else {"by": self.by}

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
        if self.file is not None:
            return {
                name: value for name, value in load_object(self.file).items() if name in _SELECTION
            } | given
        if not given:
            return None
        return {name: stable[name] for name in _SELECTION if stable.get(name) is not None} | given


@command(profiles.app, "rollout")
def rollout_command(
    profile_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    candidate: CandidateOptions,
    *,
    share: Annotated[
        int, Option("--share", min=1, max=100, help="Percent that have it.", show_default=False)
    ],
    is_dry_run: DryRunOption = False,
) -> None:
    """Give the next version of a profile to a share of callers or tasks, or change that share.

    \b
    toolgate profiles rollout review -f next.toml --share 10
    toolgate profiles rollout review --share 50
    toolgate profiles promote review
    """
    with connection.open() as client:
        profile = client.record("profile", profile_id)
        rollout = _next_rollout(client, profile, candidate.selection(profile))
        body = {**profile, "rollout": {**rollout, "share": share, **candidate.divided}}
        words = ["rollout", profile_id, *candidate.words, "--share", str(share)]
        _write_profile(client, body, connection, conditions, words=words if is_dry_run else None)


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
        profile = client.record("profile", profile_id)
        rollout = _require_rollout(profile)
        selection = {name: rollout[name] for name in _SELECTION if name in rollout}
        body = {"profile_id": profile_id, "revision": profile["revision"], "version": rollout["version"]}
        words = ["promote", profile_id]
        _write_profile(
            client, {**body, **selection}, connection, conditions, words=words if is_dry_run else None
        )


@command(profiles.app, "rollback")
def rollback_command(
    profile_id: IdArgument,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    to: Annotated[
        int | None, Option("--to", min=0, help="Also of a finished one: the revision to go back to.")
    ] = None,
    is_dry_run: DryRunOption = False,
) -> None:
    """End a rollout: every caller has the version from before it. With --to: make it what it was.

    That is a new change; history is never rewritten.
    """
    with connection.open() as client:
        if to is not None:
            answer = client.roll_back("profile", profile_id, to=to, conditions=conditions.conditions)
            connection.output.show(answer, render_rolled_back("profile", profile_id, to, answer))
            return
        profile = client.record("profile", profile_id)
        _require_rollout(profile)
        body = {name: value for name, value in profile.items() if name != "rollout"}
        _write_profile(
            client, body, connection, conditions, words=["rollback", profile_id] if is_dry_run else None
        )


@command(profiles.app, "compare")
def compare_command(
    profile_id: IdArgument, connection: GatewayConnection, *, since: SinceOption = "24h"
) -> None:
    """Compare the versions of a profile: calls, errors, denials and times, by the version that decided."""
    with connection.open() as client:
        path = f"{build_record_path('profile', profile_id)}/versions"
        answer = client.get(path, {"since": str(parse_time(since))})
    connection.output.show(answer, render_versions(answer))


def _next_rollout(client: RestClient, profile: Body, selection: Body | None) -> Body:
    """The rollout there is, or one of a version that the profile never had."""
    if selection is None:
        return _require_rollout(profile)
    answer = client.get(f"{build_record_path('profile', profile['profile_id'])}/history", _HISTORY)
    changed = (field for entry in answer["entries"] for field in entry["fields"])
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
        raise UsageError(
            f"profile `{profile['profile_id']}` has no rollout",
            hint="begin one with `toolgate profiles rollout ID --file NEXT --share 10`",
        )
    return rollout


def _write_profile(
    client: RestClient,
    body: Body,
    connection: GatewayConnection,
    conditions: ConditionOptions,
    *,
    words: list[str] | None,
) -> None:
    """Store the profile, unless another has since it was read; with `words`, only show what that would do."""
    profile_id = body["profile_id"]
    sent = {name: value for name, value in body.items() if name != "revision"}
    if words is not None:
        answer = client.post(_PLAN, {"kind": "profile", "id": profile_id, "body": sent})
        connection.output.show(answer, render_plan(answer, ["profiles", *words]))
        return
    terms = (
        conditions.conditions
        if conditions.revision is not None
        else replace(conditions.conditions, revision=body["revision"])
    )
    answer = client.put("profile", profile_id, sent, conditions=terms)
    connection.output.show(answer, render_applied("profile", profile_id, answer))


profiles.add_past("history", "diff")
