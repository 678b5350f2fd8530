"""Tasks and profiles, and what can be found out about the policy that they make."""

import asyncio
from typing import Any, Final

from toolgate.audit.index.statements import DAY_MS
from toolgate.errors import NotFound
from toolgate.govern.audit import read_version_calls
from toolgate.govern.catalog import find_fallback_rows
from toolgate.govern.changes.impact import find_literals
from toolgate.govern.changes.records import find_record
from toolgate.govern.control import Control
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Profile, Side, Task
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.lint import LintFinding, lint_all
from toolgate.policy.rollouts import list_sides
from toolgate.policy.rules import count_registered
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.records.codec import parse_record
from toolgate.surfaces.http.selection import format_mcp_url
from toolgate.surfaces.rest.data_plane.policy_shapes import (
    FindingShown,
    LintAnswer,
    OverviewAnswer,
    TaskOverview,
    VersionActivity,
    VersionsAnswer,
    show_refusal,
)
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.collection import RecordCollection, collection_endpoints
from toolgate.surfaces.rest.resources.record_shapes import (
    ProfileList,
    ProfileSent,
    ProfileShown,
    ProfileWritten,
    TaskList,
    TaskSent,
    TaskShown,
    TaskWritten,
)

TASKS: Final = RecordCollection(
    kind="task", path="/admin/api/tasks", sent=TaskSent, shown=TaskShown, listed=TaskList, written=TaskWritten
)
PROFILES: Final = RecordCollection(
    kind="profile",
    path="/admin/api/profiles",
    sent=ProfileSent,
    shown=ProfileShown,
    listed=ProfileList,
    written=ProfileWritten,
)


@get("/admin/api/lint", "viewer", "Find rules that do nothing", LintAnswer)
async def lint_policy(control: Control, _call: RestCall[None]) -> RestResponse:
    """Rules that match nothing, name what is not there, or cancel out; and literals that may be secrets.

    Where the setting `summary_fallback` is on, also packages that lose catalog rows by it.
    `unjudged` has the rules that only a server could match which has not listed its tools.
    """
    snapshot = control.gateway.snapshot
    linted = await asyncio.to_thread(lint_all, snapshot)
    literals = await asyncio.to_thread(find_literals, snapshot.servers.values())
    hidden = find_fallback_rows(control.catalog)
    return RestResponse(
        LintAnswer(
            revision=snapshot.revision,
            findings=[_show_finding(one) for one in (*linted.findings, *literals, *hidden)],
            unjudged=[_show_finding(one) for one in linted.unjudged],
        )
    )


def _show_finding(finding: LintFinding) -> FindingShown:
    return FindingShown(
        code=finding.code,
        where=f"{finding.kind} {finding.id}",
        kind=finding.kind,
        id=finding.id,
        rule=finding.rule,
        subject=finding.subject,
        message=finding.message,
    )


@get("/admin/api/mcp/tasks-overview", "viewer", "Show what each task sees", OverviewAnswer)
async def show_overview(control: Control, call: RestCall[None]) -> RestResponse:
    """What each task sees of what is registered, and the URL to see it at."""
    return RestResponse(
        await asyncio.to_thread(
            _overview, control.gateway.snapshot, control.gateway.limits, control.client_url() or call.base_url
        )
    )


def _overview(snapshot: Snapshot, limits: ScopeLimits, base_url: str) -> OverviewAnswer:
    tasks = sorted(snapshot.tasks.values(), key=lambda task: task.task_id)
    there_are = count_registered(snapshot)
    return OverviewAnswer(
        revision=snapshot.revision,
        registered_tools=there_are.tools,
        registered_tokens=there_are.tokens,
        tasks=[_task_overview(snapshot, limits, task, base_url) for task in tasks],
    )


def _task_overview(snapshot: Snapshot, limits: ScopeLimits, task: Task, base_url: str) -> TaskOverview:
    policy = parse_task_policy(task)
    # While the profile is rolled out by caller, that of the stable version.
    platform = list_sides(snapshot, policy)[0]
    scope = compose(platform, Ceiling(), task=policy, request=SessionRequest(), limits=limits)
    return TaskOverview(
        task_id=task.task_id,
        display_name=task.display_name,
        servers=list(scope.servers),
        tools=len(scope.tools),
        tokens=scope.tokens,
        url=format_mcp_url(base_url, task.task_id),
        refusal=show_refusal(scope.refusal),
        warnings=list(scope.warnings),
    )


@get(
    "/admin/api/profiles/{profile_id}/versions",
    "viewer",
    "Compare the versions of a profile",
    VersionsAnswer,
    query=(Parameter("since", "Calls from this time on, in unix milliseconds.", form="number"),),
    errors=(NotFound,),
)
async def compare_versions(control: Control, call: RestCall[None]) -> RestResponse:
    """Calls, failures, denials and times of a profile, by the version that decided.

    Counts are of the audit events that are kept. Without `since`, of the last day.
    """
    stored = await find_record(control, "profile", call.ids["profile_id"])
    profile = parse_record("profile", stored.id, stored.body, strict=False)
    assert isinstance(profile, Profile)
    until_ms = control.clock_ms()
    since_ms = call.number("since")
    since_ms = max(0, until_ms - DAY_MS) if since_ms is None else since_ms
    found = await read_version_calls(control, profile, since_ms=since_ms, until_ms=until_ms)
    rollout = profile.rollout
    candidate, share = (0, 0) if rollout is None else (rollout.version, rollout.share)
    sides: dict[int, tuple[Side | None, int]] = {
        profile.version: (None if rollout is None else "stable", 100 - share),
        candidate: ("candidate", share),
    }
    none: tuple[Side | None, int] = (None, 0)
    return RestResponse(
        VersionsAnswer(
            profile_id=profile.profile_id,
            by=None if rollout is None else rollout.by,
            since_ms=since_ms,
            until_ms=until_ms,
            versions=[
                VersionActivity(side=side, share=held, **one._asdict())
                for one in found
                for side, held in [sides.get(one.version, none)]
            ],
        )
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    *collection_endpoints(TASKS),
    *collection_endpoints(PROFILES),
    compare_versions,
    lint_policy,
    show_overview,
)
