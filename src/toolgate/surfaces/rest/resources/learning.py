"""The least policy that covers what a task used, and grants that no one uses.

Never changes anything: a lesson is a record and a plan to apply.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolgate.audit.index.statements import DAY_MS
from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.govern.control import Control
from toolgate.govern.least_privilege import (
    HolderGrant,
    RemovedGrant,
    TaskLesson,
    find_holders,
    find_idle_servers,
    learn_task,
    read_usage,
    weigh_holders,
)
from toolgate.model.principals import HolderKind, QuotaHolder
from toolgate.policy.learn import UnusedTool
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.changes import PlanAnswer, show_plan

MAX_NAMED: Final = 100
"""Unused tools of one holder that are named where others are asked about, too."""


class KeptShown(ResponseShape, frozen=True, kw_only=True):
    """Something that was used and stays."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    calls: int
    last_used_ms: int
    is_anew: bool
    """The rules of the task would deny it as they are: it was used while they were not enforced."""


class UnusedShown(ResponseShape, frozen=True, kw_only=True):
    """Something that is granted and was not used."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""
    tokens: int
    """About what its definition costs a model in each list."""


class LearnAnswer(ResponseShape, frozen=True, kw_only=True):
    """The least policy by what a task used, and what it would do. Nothing has been changed."""

    task_id: str
    since_ms: int
    audit_begins_ms: int | None
    """Of what was before, nothing is known. Null: the audit is empty."""
    calls: int
    kept: list[KeptShown]
    removed: list[UnusedShown]
    """What callers of the task get now, or could by naming servers, and would not any more."""
    tokens_saved: int
    """In each list, for callers who ask for nothing in particular."""
    record: dict[str, Any]
    """The task as it should be, to be applied with the id of the plan."""
    plan: PlanAnswer
    warnings: list[str]


def show_learned(task_id: str, found: TaskLesson, plan: PlanAnswer) -> LearnAnswer:
    """A lesson as responses show it."""
    newly_allowed = set(found.lesson.newly_allowed)
    kept = [
        KeptShown(
            server_id=ref.server_id,
            tool=ref.name,
            calls=used.calls,
            last_used_ms=used.last_ms,
            is_anew=ref in newly_allowed,
        )
        for ref, used in found.kept.items()
    ]
    return LearnAnswer.of(
        found,
        task_id=task_id,
        audit_begins_ms=found.begins_ms,
        kept=kept,
        removed=_show_unused(found.removed),
        record=dict(found.record),
        plan=plan,
    )


def _show_unused(found: Iterable[UnusedTool | RemovedGrant]) -> list[UnusedShown]:
    return [
        UnusedShown(
            server_id=one.ref.server_id, tool=one.ref.name, last_used_ms=one.last_ms, tokens=one.tokens
        )
        for one in found
    ]


class HolderShown(ResponseShape, frozen=True, kw_only=True):
    """What a task grants, or a key lets through at most, and what is not used of it."""

    kind: HolderKind
    id: str
    calls: int
    """Since then."""
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""
    granted: int
    """Tools."""
    unused: int
    unused_tokens: int
    """About what the definitions of those cost a model in each list."""
    tools: list[UnusedShown]
    """The first of those, by server and name; all of them where one task or key is asked about."""


class IdleServerShown(ResponseShape, frozen=True, kw_only=True):
    """A server that no one used since."""

    server_id: str
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""


class UnusedAnswer(ResponseShape, frozen=True, kw_only=True):
    """Unused grants, by task and key."""

    revision: Revision
    """Of the registry that is served."""
    since_ms: int
    audit_begins_ms: int | None
    """Of what was before, nothing is known. Null: the audit is empty."""
    holders: list[HolderShown]
    servers: list[IdleServerShown]
    """Unused ones; on the first page alone, and where no task or key is asked about."""
    warnings: list[str]
    next_cursor: str | None
    """Where the next page begins; null: this is the last."""


def show_holder(found: HolderGrant, *, most: int | None) -> HolderShown:
    """A holder as answers hold it, with so many of its tools named."""
    grant = found.grant
    return HolderShown.of(
        found.holder,
        grant,
        calls=found.calls,
        last_used_ms=found.last_ms,
        granted=grant.tools,
        unused=len(grant.unused),
        tools=_show_unused(grant.unused[:most]),
    )


LEARN_DAYS: Final = 7
UNUSED_DAYS: Final = 30
MAX_SERVERS: Final = 1_000


@get(
    "/admin/api/tasks/{task_id}/learn",
    "viewer",
    "Work out the least policy of a task",
    query=(
        Parameter(
            "since",
            f"What was used from this time on, in unix ms. Without it, of {LEARN_DAYS} days.",
            form="number",
        ),
        Parameter("deny_all", "Also where nothing was used, so that nothing would be left.", form="flag"),
    ),
    errors=(InvalidRecord, NotFound),
)
async def learn_policy(control: Control, call: RestCall[None]) -> LearnAnswer:
    """The least policy that would have let through all that was used of the task, and what it would do.

    Nothing is changed: apply `record` with the id of the plan. Calls that were denied do not count, nor do
    those of other tasks, nor those of callers without one. Where the task is not enforced, what its rules
    would have denied counts. Refused where nothing was used, unless `deny_all` asks for that.
    """
    task_id = call.ids["task_id"]
    found = await learn_task(
        control,
        call.caller,
        task_id,
        since_ms=_parse_since(control, call, LEARN_DAYS),
        may_be_empty=call.flag("deny_all"),
    )
    plan = await show_plan(found.plan, revision=found.revision, warnings=list(found.plan_warnings))
    return show_learned(task_id, found, plan)


@get(
    "/admin/api/unused",
    "viewer",
    "Show unused grants",
    query=(
        *PAGING,
        Parameter(
            "since",
            f"Not used from this time on, in unix ms. Without it, of {UNUSED_DAYS} days.",
            form="number",
        ),
        Parameter("kind", "Only those of `task`, or of `key`."),
        Parameter("task", "Only this task, with all its unused tools."),
        Parameter("key", "Only this key, with all its unused tools."),
    ),
    errors=(NotFound,),
)
async def list_unused(control: Control, call: RestCall[None]) -> UnusedAnswer:
    """What each task grants, and each key lets through at most, that no one used since.

    Sorted by kind and id, page by page. The first page has the servers that no one used at all.
    """
    page, snapshot = parse_page(call), control.gateway.snapshot
    task_id, key_id = call.query.get("task"), call.query.get("key")
    holders = _filter_kind(find_holders(snapshot, task_id=task_id, key_id=key_id), call.query.get("kind"))
    shown, next_cursor = page.cut(holders, str)
    uses = await read_usage(control, since_ms=_parse_since(control, call, UNUSED_DAYS))
    is_one = task_id is not None or key_id is not None
    most = None if is_one else MAX_NAMED
    servers = [] if is_one or page.after else find_idle_servers(snapshot, uses)[:MAX_SERVERS]
    return UnusedAnswer(
        revision=snapshot.revision,
        since_ms=uses.since_ms,
        audit_begins_ms=uses.begins_ms,
        holders=[show_holder(one, most=most) for one in await weigh_holders(snapshot, shown, uses)],
        servers=[IdleServerShown.of(one, last_used_ms=one.last_ms) for one in servers],
        warnings=list(uses.warnings),
        next_cursor=next_cursor,
    )


def _filter_kind(holders: Sequence[QuotaHolder], kind: str | None) -> Sequence[QuotaHolder]:
    if kind not in (None, "task", "key"):
        raise InvalidRequest("`kind` is neither `task` nor `key`")
    return [one for one in holders if kind in (None, one.kind)]


def _parse_since(control: Control, call: RestCall[None], days: int) -> int:
    now_ms, since_ms = control.clock_ms(), call.number("since")
    since_ms = now_ms - days * DAY_MS if since_ms is None else since_ms
    if since_ms >= now_ms:
        raise InvalidRequest("`since` is not before now", hint="it is a time in unix milliseconds")
    return since_ms


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (learn_policy, list_unused)
