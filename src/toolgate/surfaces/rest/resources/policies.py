"""Tasks and profiles, and what can be found out about the policy that they make."""

import asyncio
from typing import Any, Final

from toolgate.audit.tokens import DAY_MS
from toolgate.errors import NotFound
from toolgate.govern.audit import read_versions
from toolgate.govern.catalog_quality import find_fallback_rows
from toolgate.govern.changes.records import find_record
from toolgate.govern.control import Control
from toolgate.govern.literals import find_literals
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Profile, Side, Task
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.limits import Limits
from toolgate.policy.lint import Finding, lint_all
from toolgate.policy.offers import registered
from toolgate.policy.rollouts import both_sides
from toolgate.registry.records.codec import parse_record
from toolgate.surfaces.rest.data_plane.policy_shapes import (
    FindingShown,
    LintAnswer,
    OverviewAnswer,
    TaskOverview,
    VersionActivity,
    VersionsAnswer,
    show_refusal,
)
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.links import mcp_url
from toolgate.surfaces.rest.resources.collection import Collection, collection_endpoints
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

TASKS: Final = Collection(
    kind="task",
    path="/admin/api/tasks",
    sent=TaskSent,
    shown=TaskShown,
    listed=TaskList,
    written=TaskWritten,
)
PROFILES: Final = Collection(
    kind="profile",
    path="/admin/api/profiles",
    sent=ProfileSent,
    shown=ProfileShown,
    listed=ProfileList,
    written=ProfileWritten,
)


async def lint_policy(control: Control, _call: Call[None]) -> Answer:
    """Rules that match nothing, name what is not there, or cancel out; and literals that may be secrets.

    Where the setting `summary_fallback` is on, also packages that lose catalog rows by it.
    `unjudged` has the rules that only a server could match which has not listed its tools.
    """
    snapshot = control.gateway.snapshot
    linted = await asyncio.to_thread(lint_all, snapshot)
    literals = await asyncio.to_thread(find_literals, snapshot.servers.values())
    hidden = [] if control.keeper is None else find_fallback_rows(control.keeper)
    return Answer(
        LintAnswer(
            revision=snapshot.revision,
            findings=[_show_finding(one) for one in (*linted.findings, *literals, *hidden)],
            unjudged=[_show_finding(one) for one in linted.unjudged],
        )
    )


def _show_finding(finding: Finding) -> FindingShown:
    return FindingShown(
        code=finding.code,
        where=f"{finding.kind} {finding.id}",
        kind=finding.kind,
        id=finding.id,
        rule=finding.rule,
        subject=finding.subject,
        message=finding.message,
    )


async def show_overview(control: Control, call: Call[None]) -> Answer:
    """What each task sees of what is registered, and the URL to see it at."""
    return Answer(
        await asyncio.to_thread(
            _overview,
            control.gateway.snapshot,
            control.gateway.limits,
            control.door_url() or call.base_url,
        )
    )


def _overview(snapshot: Snapshot, limits: Limits, base_url: str) -> OverviewAnswer:
    tasks = sorted(snapshot.tasks.values(), key=lambda task: task.task_id)
    there_are = registered(snapshot)
    return OverviewAnswer(
        revision=snapshot.revision,
        registered_tools=there_are.tools,
        registered_tokens=there_are.tokens,
        tasks=[_task_overview(snapshot, limits, task, base_url) for task in tasks],
    )


def _task_overview(snapshot: Snapshot, limits: Limits, task: Task, base_url: str) -> TaskOverview:
    policy = parse_task_policy(task)
    # While the profile is rolled out by caller, that of the stable version.
    platform = both_sides(snapshot, policy)[0]
    scope = compose(platform, Ceiling(), task=policy, request=SessionRequest(), limits=limits)
    return TaskOverview(
        task_id=task.task_id,
        display_name=task.display_name,
        servers=list(scope.servers),
        tools=len(scope.tools),
        tokens=scope.tokens,
        url=mcp_url(base_url, task.task_id),
        refusal=show_refusal(scope.refusal),
        warnings=list(scope.warnings),
    )


async def compare_versions(control: Control, call: Call[None]) -> Answer:
    """Calls, failures, denials and times of a profile, by the version that decided.

    Counts are of the audit events that are kept. Without `since`, of the last day.
    """
    stored = await find_record(control, "profile", call.ids["profile_id"])
    profile = parse_record("profile", stored.id, stored.body, strict=False)
    assert isinstance(profile, Profile)
    until_ms = control.clock_ms()
    since_ms = call.number("since")
    since_ms = max(0, until_ms - DAY_MS) if since_ms is None else since_ms
    found = await read_versions(control, profile, since_ms=since_ms, until_ms=until_ms)
    rollout = profile.rollout
    candidate, share = (0, 0) if rollout is None else (rollout.version, rollout.share)
    sides: dict[int, tuple[Side | None, int]] = {
        profile.version: (None if rollout is None else "stable", 100 - share),
        candidate: ("candidate", share),
    }
    none: tuple[Side | None, int] = (None, 0)
    return Answer(
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


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    *collection_endpoints(TASKS),
    *collection_endpoints(PROFILES),
    Endpoint(
        method="GET",
        path="/admin/api/profiles/{profile_id}/versions",
        role="viewer",
        summary="Compare the versions of a profile",
        handler=compare_versions,
        query=(Parameter("since", "Calls from this time on, in unix milliseconds.", form="number"),),
        answer=VersionsAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/admin/api/lint",
        role="viewer",
        summary="Find rules that do nothing",
        handler=lint_policy,
        answer=LintAnswer,
    ),
    Endpoint(
        method="GET",
        path="/admin/api/mcp/tasks-overview",
        role="viewer",
        summary="Show what each task sees",
        handler=show_overview,
        answer=OverviewAnswer,
    ),
)
