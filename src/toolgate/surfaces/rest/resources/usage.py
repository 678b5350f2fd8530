"""What was used: quotas, tokens that tools cost models, calls over time; and what was not.

From use follow the least policy that covers it, and grants that no one uses. Never changes anything: a lesson
is a record and a plan to apply.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from toolgate.audit.index import activity
from toolgate.audit.index.statements import DAY_MS
from toolgate.audit.index.tables import SUMS, EventFilter, TokenSums
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern import least_privilege
from toolgate.govern.audit import MAX_BUCKETS, list_quota_usage
from toolgate.govern.control import Control
from toolgate.model.principals import HolderKind, QuotaName
from toolgate.policy.learn import UnusedTool
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall, parse_page
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get
from toolgate.surfaces.rest.resources.audit import parse_exact_filters
from toolgate.surfaces.rest.resources.changes import PlanResponse, show_plan


class BudgetUsed(ResponseShape, frozen=True, kw_only=True):
    """One budget of a key or a task, in the minute or day that it is."""

    holder_kind: HolderKind
    holder_id: str
    budget: QuotaName
    limit: int
    used: int
    """Also what nodes were granted and have not used yet, which is little."""
    resets_at_ms: int
    """When the next minute or day begins, by UTC."""


class BudgetsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by holder."""

    budgets: list[BudgetUsed]
    next_cursor: NextCursor


@get("/admin/api/budgets", "viewer", "Show budgets over time, and what is used of them", query=PAGING)
async def list_quotas(control: Control, call: RestCall[None]) -> BudgetsResponse:
    """Every budget over time that a key or a task has, and what is used of it at all nodes together."""
    found = await list_quota_usage(control)
    # No id has a space, and it sorts before all they have.
    uses, more = parse_page(call).cut(found, lambda use: " ".join((*use.holder, use.budget)))
    shown = [BudgetUsed.of(one, holder_kind=one.holder.kind, holder_id=one.holder.id) for one in uses]
    return BudgetsResponse(budgets=shown, next_cursor=more)


DAYS: Final = 7  # a week
MAX_DAYS: Final = 366  # a leap year


class TokensShown(ResponseShape, frozen=True, kw_only=True):
    """What lists and results cost, by estimate."""

    lists: int
    """Lists of tools that clients and models were given."""
    definition_tokens: int
    """What the definitions in them cost."""
    full_tokens: int
    """What the definitions of all registered tools would have cost, each time."""
    saved_tokens: int
    """The difference; negative where the tools that find others cost more than all there are."""
    calls: int
    """Those that had a result."""
    result_tokens: int


class TokensOfDay(TokensShown, frozen=True, kw_only=True):
    """What one day cost."""

    day: str
    """In UTC: `2026-01-31`."""


class TokensOfTask(TokensShown, frozen=True, kw_only=True):
    """What one task cost."""

    task_id: str
    """Empty: callers without a task."""


class TokensResponse(ResponseShape, frozen=True, kw_only=True):
    """What some days cost, by day and by task."""

    since: str
    """The first of the days, in UTC."""
    until: str
    """The last: today, which is not over."""
    days: list[TokensOfDay]
    """In order; those without a list or a call are left out."""
    tasks: list[TokensOfTask]
    """The 1,000 with the most tokens, in that order."""
    total: TokensShown


@get(
    "/admin/api/tokens",
    "viewer",
    "Add up tokens",
    query=(
        Parameter("days", f"How many days, today included: 1 to {MAX_DAYS}, {DAYS} by default.", "number"),
        Parameter("task", "Only this task. Empty: only callers without one."),
    ),
)
async def show_tokens(control: Control, call: RestCall[None]) -> TokensResponse:
    """What lists of tools and results of calls cost models, and what smaller lists have saved.

    All are estimates, good for comparing. Nodes tell once a minute, so the newest may be missing.
    """
    days = call.count("days", default=DAYS, most=MAX_DAYS)
    today = control.clock_ms() // DAY_MS
    since = max(0, today - days + 1)
    found = await control.audit_index.tokens(since_ms=since * DAY_MS, task_id=call.query.get("task"))
    total = TokenSums(*(sum(getattr(day, name) for day in found.days.values()) for name in SUMS))

    def encode(sums: TokenSums) -> dict[str, int]:
        return sums._asdict() | {"saved_tokens": sums.full_tokens - sums.definition_tokens}

    def format_day(day: int) -> str:
        return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()

    return TokensResponse(
        since=format_day(since),
        until=format_day(today),
        days=[TokensOfDay(day=format_day(day), **encode(sums)) for day, sums in found.days.items()],
        tasks=[TokensOfTask(task_id=task_id, **encode(sums)) for task_id, sums in found.tasks.items()],
        total=TokensShown(**encode(total)),
    )


class ActivityResponse(ResponseShape, frozen=True, kw_only=True):
    """Calls over time, and by whom and what."""

    since_ms: int
    until_ms: int
    bucket_ms: int
    buckets: list[activity.ActivityBucket]
    servers: list[activity.ServerActivity]
    """By id; the 1,000 with the most calls."""
    tools: list[activity.ToolActivity]
    """The 20 slowest by `p95_ms`."""
    denials: list[activity.DenialCount]
    """The 20 most frequent."""
    callers: list[activity.CallerActivity]
    """The 20 with the most calls."""


BUCKETS: Final = 60  # a bar for each of the last minutes of an hour
_MAX_MS: Final = 10**15  # the year 33658: no overflow in sums


@get(
    "/admin/api/activity",
    "viewer",
    "Count the calls",
    query=(
        Parameter("since", "From this time on, in unix milliseconds.", "number"),
        Parameter("until", "Up to this time, in unix milliseconds. Without it, now.", "number"),
        Parameter("buckets", f"In how many spans: 1 to {MAX_BUCKETS}, {BUCKETS} by default.", "number"),
        Parameter("server", "Only calls of this server."),
        Parameter("task", "Only calls of this task."),
    ),
)
async def read_activity_counts(control: Control, call: RestCall[None]) -> ActivityResponse:
    """How many calls there were, how they went, what was slow and what was denied.

    Without `since`, of the last day. Counts are of the events that are kept.
    """
    until_ms = call.number_or("until", control.clock_ms())
    since_ms = call.number_or("since", max(0, until_ms - DAY_MS))
    buckets = call.count("buckets", default=BUCKETS, most=MAX_BUCKETS)
    if not since_ms < until_ms <= _MAX_MS:
        raise InvalidRequest("`since` must be before `until`", hint="both are times in unix milliseconds")
    only, index = EventFilter(equals=parse_exact_filters(call)), control.audit_index
    async with index.counting:  # it scans every call, so one query runs at a time
        found = await index.activity(only, since_ms=since_ms, until_ms=until_ms, buckets=buckets)
    return ActivityResponse.of(found)


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


class IdleServerShown(ResponseShape, frozen=True, kw_only=True):
    """A server that no one used since."""

    server_id: str
    last_used_ms: int | None
    """Null: never, as far as the audit reaches back."""


class UnusedShown(IdleServerShown, frozen=True, kw_only=True):
    """Something that is granted and was not used."""

    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    tokens: int
    """About what its definition costs a model in each list."""


class LearnResponse(ResponseShape, frozen=True, kw_only=True):
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
    plan: PlanResponse
    warnings: list[str]


def _show_unused(found: Iterable[UnusedTool | least_privilege.RemovedGrant]) -> list[UnusedShown]:
    return [UnusedShown.of(one.ref, one, tool=one.ref.name, last_used_ms=one.last_ms) for one in found]


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


class UnusedResponse(ResponseShape, frozen=True, kw_only=True):
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
    next_cursor: NextCursor


def _show_holder(found: least_privilege.HolderGrant, *, most: int | None) -> HolderShown:
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


LEARN_DAYS: Final = 7  # a week of work has the usual calls
UNUSED_DAYS: Final = 30  # what runs monthly counts as used
MAX_SERVERS: Final = 1_000  # as the other lists of an answer


_LEARN_QUERY: Final = (
    Parameter("since", f"Use from this time on, in unix ms. Without it, of {LEARN_DAYS} days.", "number"),
    Parameter("deny_all", "Also where nothing was used, so that nothing would be left.", "flag"),
)
_UNUSED_QUERY: Final = (
    *PAGING,
    Parameter("since", f"Unused since then, in unix ms. By default, for {UNUSED_DAYS} days.", "number"),
    Parameter("kind", "Only those of `task`, or of `key`."),
    Parameter("task", "Only this task, with all its unused tools."),
    Parameter("key", "Only this key, with all its unused tools."),
)


@get("/admin/api/tasks/{task_id}/learn", "viewer", "Work out the least policy of a task", query=_LEARN_QUERY)
async def learn_policy(control: Control, call: RestCall[None]) -> LearnResponse:
    """The least policy that would have let through all that was used of the task, and what it would do.

    Nothing is changed: apply `record` with the id of the plan. Calls that were denied do not count, nor do
    those of other tasks, nor those of callers without one. Where the task is not enforced, what its rules
    would have denied counts. Refused where nothing was used, unless `deny_all` asks for that.
    """
    task_id, since_ms = call.ids["task_id"], _parse_since(control, call, LEARN_DAYS)
    may_be_empty = call.flag("deny_all")
    found = await least_privilege.learn_task(
        control, call.caller, task_id, since_ms=since_ms, may_be_empty=may_be_empty
    )
    plan = await show_plan(found.plan, found.revision, found.plan_warnings)
    newly_allowed = set(found.lesson.newly_allowed)
    kept = [
        KeptShown.of(ref, used, tool=ref.name, last_used_ms=used.last_ms, is_anew=ref in newly_allowed)
        for ref, used in found.kept.items()
    ]
    removed, begins_ms = _show_unused(found.removed), found.begins_ms
    return LearnResponse.of(
        found, task_id=task_id, audit_begins_ms=begins_ms, kept=kept, removed=removed, plan=plan
    )


@get("/admin/api/unused", "viewer", "Show unused grants", query=_UNUSED_QUERY, errors=(NotFound,))
async def list_unused(control: Control, call: RestCall[None]) -> UnusedResponse:
    """What each task grants, and each key lets through at most, that no one used since.

    Sorted by kind and id, page by page. The first page has the servers that no one used at all.
    """
    page, snapshot = parse_page(call), control.gateway.snapshot
    task_id, key_id, kind = (call.query.get(name) for name in ("task", "key", "kind"))
    if kind not in (None, "task", "key"):
        raise InvalidRequest("`kind` is neither `task` nor `key`")
    holders = least_privilege.find_holders(snapshot, task_id=task_id, key_id=key_id)
    shown, next_cursor = page.cut([one for one in holders if kind in (None, one.kind)], str)
    uses = await least_privilege.read_usage(control, since_ms=_parse_since(control, call, UNUSED_DAYS))
    is_one = task_id is not None or key_id is not None
    found = await least_privilege.weigh_holders(snapshot, shown, uses)
    servers = [] if is_one or page.after else least_privilege.find_idle_servers(snapshot, uses)[:MAX_SERVERS]
    return UnusedResponse.of(
        uses,
        revision=snapshot.revision,
        audit_begins_ms=uses.begins_ms,
        holders=[_show_holder(one, most=None if is_one else MAX_NAMED) for one in found],
        servers=[IdleServerShown.of(one, last_used_ms=one.last_ms) for one in servers],
        next_cursor=next_cursor,
    )


def _parse_since(control: Control, call: RestCall[None], days: int) -> int:
    now_ms = control.clock_ms()
    since_ms = call.number_or("since", now_ms - days * DAY_MS)
    if since_ms >= now_ms:
        raise InvalidRequest("`since` is not before now", hint="it is a time in unix milliseconds")
    return since_ms
