"""Tasks, profiles and pins, and the effect of their policy: lint, overview, versions, pattern matches.

A pin holds the approved definitions of a server. Its diff compares them with the definitions the server
lists.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field, JsonValue

from toolgate.audit.index.activity import VersionCalls
from toolgate.audit.index.statements import DAY_MS
from toolgate.catalog.naming import join_tool_name
from toolgate.errors import Compacted, InvalidRecord
from toolgate.govern.catalog import find_fallback_rows
from toolgate.govern.changes.impact import find_literals
from toolgate.govern.changes.records import find_record, show_record
from toolgate.govern.control import Control
from toolgate.govern.pins import ToolDifference, diff_pin, find_unapproved_tools, read_pin
from toolgate.model.names import kind_of
from toolgate.model.revisions import StoredRecord
from toolgate.model.tasks import Profile, RolloutBy, Selection, Side, Task
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.lint import LintFinding, lint
from toolgate.policy.patterns import MAX_KIND_PATTERN, Patterns, parse_pattern
from toolgate.policy.resolve import ScopeInputs, select_servers
from toolgate.policy.rollouts import list_sides
from toolgate.policy.rules import can_match, count_registered, find_matching, is_unlisted
from toolgate.policy.scope import NO_LIMITS
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import parse_record
from toolgate.registry.records.fields import Name, ServerId, Sha256, Tag
from toolgate.registry.records.policy_bodies import ProfileBody, TaskBody
from toolgate.registry.records.server_bodies import PinBody
from toolgate.surfaces.http.parsing import format_mcp_url
from toolgate.surfaces.rest.data_plane.scopes import RefusalShown
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get, post
from toolgate.surfaces.rest.resources import collection
from toolgate.surfaces.rest.resources.collection import RecordCollection, build_shapes

MAX_PATTERNS: Final = 100  # more than a rule list on a page has
MAX_SHOWN: Final = 200
"""Names listed per pattern: one page of the console."""
JsonTexts = Annotated[
    dict[str, JsonValue],
    Field(description="The task's settings. A value that is not text is stored as its JSON text."),
]

TASKS: Final = RecordCollection(
    kind="task",
    path="/admin/api/tasks",
    shapes=build_shapes("task", TaskBody, Name, sent={"config": (JsonTexts, {})}),
)
PROFILES: Final = RecordCollection(
    kind="profile", path="/admin/api/profiles", shapes=build_shapes("profile", ProfileBody, Name)
)
RECORD_ENDPOINTS: Final = (*TASKS.endpoints(), *PROFILES.endpoints())


class FindingShown(LintFinding, ResponseShape, frozen=True, kw_only=True):
    """A rule that probably does not do what its author intended."""

    where: str
    """The kind and id of the record, separated by a space."""


class LintResponse(ResponseShape, frozen=True, kw_only=True):
    """Rules without effect, and other findings."""

    revision: Revision
    findings: list[FindingShown]
    unjudged: list[FindingShown]
    """Rules that may match tools of servers that have not listed their tools."""


class TaskOverview(ResponseShape, frozen=True, kw_only=True):
    """The scope of one task."""

    task_id: str
    display_name: str
    servers: list[str]
    tools: int
    tokens: int
    url: str
    refusal: RefusalShown | None
    warnings: list[str]


class OverviewResponse(ResponseShape, frozen=True, kw_only=True):
    """The scopes of all tasks, and the totals of the registry."""

    revision: Revision
    registered_tools: int
    registered_tokens: int
    tasks: list[TaskOverview]


class VersionActivity(VersionCalls, ResponseShape, frozen=True, kw_only=True):
    """The calls decided by one version of a profile, and its share."""

    side: Side | None
    """Null: no rollout is under way, or the version is not part of it."""
    share: int
    """Percent of callers or tasks with this version now."""


class VersionsResponse(ResponseShape, frozen=True, kw_only=True):
    """The versions of a profile, with the calls that each decided."""

    profile_id: str
    by: RolloutBy | None
    """Whether the rollout is by caller or by task. Null: none is under way."""
    since_ms: int
    until_ms: int
    versions: list[VersionActivity]


@get("/admin/api/lint", "viewer", "Lint the policy")
async def lint_policy(control: Control, _call: RestCall[None]) -> LintResponse:
    """Rules that match nothing, name unknown things or cancel out, and literals that may be secrets.

    If the setting `summary_fallback` is on, findings include packages that lose catalog rows by it.
    """

    def show_all(findings: Iterable[LintFinding]) -> list[FindingShown]:
        return [FindingShown.of(one, where=f"{one.kind} {one.id}") for one in findings]

    snapshot = control.gateway.snapshot
    linted = await asyncio.to_thread(lint, snapshot)
    literals = await asyncio.to_thread(find_literals, snapshot.servers.values())
    hidden = find_fallback_rows(control.catalog)
    return LintResponse(
        revision=snapshot.revision,
        findings=show_all((*linted.findings, *literals, *hidden)),
        unjudged=show_all(linted.unjudged),
    )


@get("/admin/api/mcp/tasks-overview", "viewer", "Show the scope of each task")
async def show_overview(control: Control, call: RestCall[None]) -> OverviewResponse:
    """The scope of each task, and the URL of its MCP endpoint."""
    snapshot, limits, base_url = control.gateway.snapshot, control.gateway.limits, control.client_url()

    def show_task(task: Task) -> TaskOverview:
        policy = parse_task_policy(task)
        # During a rollout by caller, use the stable version.
        platform = list_sides(snapshot, policy)[0]
        scope = compose(ScopeInputs(platform, task=policy), limits=limits)
        url = format_mcp_url(base_url or call.base_url, task.task_id)
        return TaskOverview.of(task, scope, servers=scope.servers, tools=len(scope.tools), url=url)

    def show_all() -> OverviewResponse:
        tasks = [show_task(task) for _, task in sorted(snapshot.tasks.items())]
        total = count_registered(snapshot)
        return OverviewResponse.of(
            snapshot, registered_tools=total.tools, registered_tokens=total.tokens, tasks=tasks
        )

    return await asyncio.to_thread(show_all)


class ProfileOverview(ResponseShape, frozen=True, kw_only=True):
    """What a profile selects in the environment of this gateway, without a task."""

    profile_id: str
    tools: int
    tokens: int
    unlisted: list[str]
    """Selected servers that have not listed their tools."""


class ProfilesOverviewResponse(ResponseShape, frozen=True, kw_only=True):
    """The selections of all profiles, and the totals of the registry."""

    revision: Revision
    registered_tools: int
    registered_tokens: int
    profiles: list[ProfileOverview]


@get("/admin/api/mcp/profiles-overview", "viewer", "Show the selection of each profile")
async def show_profiles(control: Control, _call: RestCall[None]) -> ProfilesOverviewResponse:
    """The tools that each profile selects. During a rollout, those of the stable version."""
    snapshot = control.gateway.snapshot

    def show_profile(profile: Profile) -> ProfileOverview:
        request = SessionRequest(profile=profile.profile_id)
        scope = compose(ScopeInputs(snapshot, request=request), limits=NO_LIMITS)
        selected = select_servers(snapshot, profile.selection_for(snapshot.environment))
        unlisted = [one.record.server_id for one in _find_unlisted(snapshot, selected)]
        return ProfileOverview.of(profile, scope, tools=len(scope.tools), unlisted=unlisted)

    def show_all() -> ProfilesOverviewResponse:
        profiles = [show_profile(profile) for _, profile in sorted(snapshot.profiles.items())]
        total = count_registered(snapshot)
        return ProfilesOverviewResponse.of(
            snapshot, registered_tools=total.tools, registered_tokens=total.tokens, profiles=profiles
        )

    return await asyncio.to_thread(show_all)


def _find_unlisted(snapshot: Snapshot, server_ids: Iterable[str]) -> list[ServerTools]:
    """Of these servers, those that are enabled and have not listed their tools: their rules cannot be
    judged."""
    found = (snapshot.servers.get(server_id) for server_id in sorted(server_ids))
    return [one for one in found if one is not None and one.record.enabled and is_unlisted(one)]


@get(
    "/admin/api/profiles/{profile_id}/versions",
    "viewer",
    "Compare the versions of a profile",
    query=(Parameter("since", "Start time, in unix milliseconds. Default: one day ago.", "number"),),
)
async def compare_versions(control: Control, call: RestCall[None]) -> VersionsResponse:
    """Calls, errors, denials and latencies of a profile, by the version that decided.

    Counts cover the audit events that are still kept.
    """
    stored = await find_record(control, "profile", call.ids["profile_id"])
    profile = parse_record("profile", stored.id, stored.body, strict=False)
    assert isinstance(profile, Profile)
    until_ms = control.clock_ms()
    since_ms = call.number_or("since", max(0, until_ms - DAY_MS))
    async with control.audit_index.counting:
        found = await control.audit_index.versions(profile.profile_id, since_ms=since_ms, until_ms=until_ms)
    rollout, by = profile.rollout, None if profile.rollout is None else profile.rollout.by
    sides: dict[int, tuple[Side | None, int]] = {profile.version: (None, 100)}
    if rollout is not None:
        sides = {
            profile.version: ("stable", 100 - rollout.share),
            rollout.version: ("candidate", rollout.share),
        }
    silent = sides.keys() - {one.version for one in found}
    counted = sorted([*found, *(VersionCalls(version, 0, 0, 0, None, None) for version in silent)])
    placed = [(one, *sides.get(one.version, (None, 0))) for one in counted]
    versions = [VersionActivity.of(one, side=side, share=share) for one, side, share in placed]
    return VersionsResponse.of(profile, by=by, since_ms=since_ms, until_ms=until_ms, versions=versions)


_Pattern = Annotated[str, Field(max_length=MAX_KIND_PATTERN)]


class MatchSent(StrictBody):
    """Patterns to match."""

    patterns: Annotated[list[_Pattern], Field(max_length=MAX_PATTERNS)]
    """Patterns, in the syntax of policy rules."""
    deny: bool = False
    """Match as a denylist: `@destructive` also matches tools whose effects are unknown."""
    servers: Annotated[list[ServerId], Field(max_length=2_000)] | None = None
    """Match only tools of these servers, as in a profile. Default: of all servers."""
    tags: Annotated[list[Tag], Field(max_length=2_000)] | None = None
    """Without `servers`: match only tools of servers that have any of these tags."""


class MatchShown(ResponseShape, frozen=True, kw_only=True):
    """The matches of one pattern."""

    pattern: str
    count: int
    """The number of matches."""
    tools: list[str]
    """The first 200 matches: `server.tool`, or the names of prompts and resources as in rules."""
    unlisted: list[str]
    """Servers that the pattern may match, and that have not listed their tools."""
    error: str | None
    """Why the pattern is invalid. Null: it is valid."""


class MatchResponse(ResponseShape, frozen=True, kw_only=True):
    """The matches of each pattern, in the order sent."""

    revision: Revision
    matches: list[MatchShown]


@post("/admin/api/match", "viewer", "Match patterns")
async def match_patterns(control: Control, call: RestCall[MatchSent]) -> MatchResponse:
    """The matches of each pattern, in the whole registry or on the selected servers. Nothing is stored."""
    snapshot, sent = control.gateway.snapshot, call.body
    selection = Selection(
        servers=None if sent.servers is None else tuple(sent.servers),
        tags=None if sent.tags is None else tuple(sent.tags),
    )
    server_ids = select_servers(snapshot, selection) & snapshot.servers.keys()
    match = partial(_match_one, snapshot, server_ids, is_deny=sent.deny)
    matches = await asyncio.to_thread(lambda: list(map(match, sent.patterns)))
    return MatchResponse(revision=snapshot.revision, matches=matches)


def _match_one(
    snapshot: Snapshot, server_ids: AbstractSet[str], pattern: str, *, is_deny: bool
) -> MatchShown:
    try:
        patterns = Patterns((parse_pattern(pattern),))
        found = list(find_matching(snapshot, patterns, is_deny=is_deny, server_ids=server_ids))
    except InvalidRecord as exc:
        return MatchShown(pattern=pattern, count=0, tools=[], unlisted=[], error=f"{exc}; {exc.hint}")
    shown = [
        f"{kind}{ref.server_id}/{ref.name[len(kind) :]}" if kind else join_tool_name(ref)
        for ref in found[:MAX_SHOWN]
        for kind in [kind_of(ref.name)]
    ]
    unlisted = [
        one.record.server_id
        for one in _find_unlisted(snapshot, server_ids)
        if can_match(one, patterns, is_deny=is_deny)
    ]
    return MatchShown(pattern=pattern, count=len(found), tools=shown, unlisted=unlisted, error=None)


_CHANGED: Final = Field(
    description="Stored entries stay while `tools` approves the same definition. Null for a tool: it is "
    "approved as in `tools`."
)
_WAITING: Final = Field(description="Changed and new tools, which need an approval.")


class PinDiffResponse(ResponseShape, frozen=True, kw_only=True):
    """The tools of a pinned server that differ from their approved definitions."""

    revision: Revision
    server_id: str
    tools: list[ToolDifference]


async def show_pins(control: Control, records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """Pins, each with the tools that need an approval."""
    servers = control.gateway.snapshot.servers

    def show_pin(stored: StoredRecord) -> dict[str, Any]:
        waiting = find_unapproved_tools(read_pin(control, stored), servers.get(stored.id))
        return {**show_record(stored), "waiting": waiting}

    return await asyncio.to_thread(lambda: list(map(show_pin, records)))


_ADDED: Final = {"waiting": Annotated[list[str], _WAITING]}
_SENT: Final[Mapping[str, Any]] = {"changed": (Annotated[dict[str, Sha256 | None], _CHANGED], {})}
PINS: Final = RecordCollection(
    kind="pin",
    path="/admin/api/pins",
    shapes=build_shapes("pin", PinBody, ServerId, added=_ADDED, sent=_SENT),
    show=show_pins,
)
PIN_ENDPOINTS: Final = PINS.endpoints()


@get(
    f"{PINS.one_path}/diff",
    "viewer",
    "Compare a server with its pin",
    query=(*collection.DIFF_QUERY, Parameter("tool", "Only this tool. Cannot be combined with `since`.")),
    errors=(Compacted,),
)
async def show_differences(
    control: Control, call: RestCall[None]
) -> PinDiffResponse | collection.DiffResponse:
    """The differences between the listed and the approved definitions, by tool.

    With `since`, the differences between the pin at that registry revision and at `upto`.
    """
    if "since" in call.query:
        return await PINS.diff(control, call)
    server_id, revision = call.ids["server_id"], control.store.revision
    found = await diff_pin(control, server_id, tool=call.query.get("tool"))
    return PinDiffResponse(revision=revision, server_id=server_id, tools=found)
