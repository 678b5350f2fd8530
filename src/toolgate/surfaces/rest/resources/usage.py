"""Usage: quotas, tokens that tools cost models, calls over time, and unused grants.

Learning derives the least policy that covers the usage. Never changes anything: its result is a record and a
plan to apply.
"""

import asyncio
from functools import cache, partial
from typing import Final

import msgspec

from toolgate.audit.index.activity import Activity
from toolgate.audit.index.statements import DAY_MS
from toolgate.audit.index.tables import SUMS, EventFilter, TokenSums
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern import least_privilege
from toolgate.govern.control import Control
from toolgate.model.principals import HolderKind, QuotaHolder, QuotaName
from toolgate.policy.admission import list_limits, window_at
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.rules import count_registered
from toolgate.surfaces.rest.framework.request import PAGING, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get
from toolgate.surfaces.rest.resources.audit import parse_exact_filters
from toolgate.surfaces.rest.resources.changes import PlanResponse, show_plan


class BudgetUsed(ResponseShape, frozen=True, kw_only=True):
    """One rate limit or quota of a key or a task, in the current minute or day."""

    holder_kind: HolderKind
    holder_id: str
    budget: QuotaName
    limit: int
    used: int
    """Includes the small amounts that nodes have leased and not used."""
    resets_at_ms: int
    """When the next minute or day (UTC) begins."""


class BudgetsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of rate limits and quotas, sorted by holder."""

    budgets: list[BudgetUsed]
    next_cursor: NextCursor


@get("/admin/api/budgets", "viewer", "Show rate limits and quotas", query=PAGING)
async def list_quotas(control: Control, call: RestCall[None]) -> BudgetsResponse:
    """Every rate limit and quota of keys and tasks, and its usage across all nodes."""
    counts = {(one.holder, one.budget): one.used for one in await control.store.spending.usage()}
    now_ms, snapshot = control.clock_ms(), control.gateway.snapshot
    held = [(QuotaHolder("key", key.key_id), key.budgets) for key in snapshot.keys.values()]
    held += [
        (QuotaHolder("task", task.task_id), parse_task_policy(task).budgets)
        for task in snapshot.tasks.values()
        if "mcp.budgets" in task.config
    ]
    found = {
        # No id contains a space, and a space sorts before the characters of ids.
        f"{holder.kind} {holder.id} {budget}": BudgetUsed(
            holder_kind=holder.kind,
            holder_id=holder.id,
            budget=budget,
            limit=limit,
            used=counts.get((holder, budget), 0),
            resets_at_ms=window_at(budget, now_ms).ends_ms,
        )
        for holder, budgets in held
        if budgets is not None
        for budget, limit in list_limits(budgets).items()
    }
    uses, more = call.page().cut(sorted(found), str)
    return BudgetsResponse(budgets=[found[one] for one in uses], next_cursor=more)


DAYS: Final = 7  # a week
MAX_DAYS: Final = 366  # a leap year


class TokensShown(TokenSums, ResponseShape, frozen=True, kw_only=True):
    """Estimated tokens of tool lists and results."""

    saved_tokens: int
    """`full_tokens` without `definition_tokens`. Negative if the tools of `find` mode have more tokens than
    all registered tools."""


class TokensOfDay(TokensShown, frozen=True, kw_only=True):
    """The tokens of one day."""

    day: str
    """The date in UTC, such as `2026-01-31`."""


class TokensOfTask(TokensShown, frozen=True, kw_only=True):
    """The tokens of one task."""

    task_id: str
    """The id of the task. Empty: callers without a task."""


class TokensResponse(ResponseShape, frozen=True, kw_only=True):
    """Token usage by day and by task."""

    since: str
    """The first day, in UTC."""
    until: str
    """The last day: today, which is incomplete."""
    days: list[TokensOfDay]
    """In order. Days without tool lists and calls are omitted."""
    tasks: list[TokensOfTask]
    """The 1,000 tasks with the most tokens, the largest first."""
    total: TokensShown


@get(
    "/admin/api/tokens",
    "viewer",
    "Show token usage",
    query=(
        Parameter(
            "days", f"The number of days, including today: 1 to {MAX_DAYS}. Default: {DAYS}.", "number"
        ),
        Parameter("task", "Only the task with this id. Empty: only callers without a task."),
    ),
)
async def show_tokens(control: Control, call: RestCall[None]) -> TokensResponse:
    """The tokens of tool lists and results, and the tokens saved by smaller lists.

    All counts are estimates. Nodes report once a minute, so the newest may be missing.
    """
    days = call.count("days", default=DAYS, most=MAX_DAYS)
    today = control.clock_ms() // DAY_MS
    since = max(0, today - days + 1)
    found = await control.audit_index.tokens(since_ms=since * DAY_MS, task_id=call.query.get("task"))
    total = TokenSums(*(sum(getattr(day, name) for day in found.days.values()) for name in SUMS))

    def encode(sums: TokenSums) -> dict[str, int]:
        return msgspec.structs.asdict(sums) | {"saved_tokens": sums.full_tokens - sums.definition_tokens}

    format_day = least_privilege.format_day
    return TokensResponse(
        since=format_day(since * DAY_MS),
        until=format_day(today * DAY_MS),
        days=[TokensOfDay(day=format_day(day * DAY_MS), **encode(sums)) for day, sums in found.days.items()],
        tasks=[TokensOfTask(task_id=task_id, **encode(sums)) for task_id, sums in found.tasks.items()],
        total=TokensShown(**encode(total)),
    )


BUCKETS: Final = 60  # a bar for each of the last minutes of an hour
MAX_BUCKETS: Final = 500  # a choice: more columns than a chart can show
_MAX_MS: Final = 10**15  # the year 33658: no overflow in sums


@get(
    "/admin/api/activity",
    "viewer",
    "Count calls",
    query=(
        Parameter("since", "Start time, in unix milliseconds. Default: one day before `until`.", "number"),
        Parameter("until", "End time, in unix milliseconds. Default: now.", "number"),
        Parameter("buckets", f"The number of buckets: 1 to {MAX_BUCKETS}. Default: {BUCKETS}.", "number"),
        Parameter("server", "Only calls of the server with this id."),
        Parameter("task", "Only calls of the task with this id."),
    ),
)
async def read_activity_counts(control: Control, call: RestCall[None]) -> Activity:
    """The number of calls, with their outcomes, latencies and denials.

    Counts cover the audit events that are still kept.
    """
    until_ms = call.number_or("until", control.clock_ms())
    since_ms = call.number_or("since", max(0, until_ms - DAY_MS))
    buckets = call.count("buckets", default=BUCKETS, most=MAX_BUCKETS)
    if not since_ms < until_ms <= _MAX_MS:
        raise InvalidRequest("`since` must be before `until`", hint="both are times in unix milliseconds")
    only, index = EventFilter(equals=parse_exact_filters(call)), control.audit_index
    async with index.counting:  # it scans every call, so one query runs at a time
        return await index.activity(only, since_ms=since_ms, until_ms=until_ms, buckets=buckets)


MAX_NAMED: Final = 100
"""Unused tools listed per holder, unless the query names one holder."""


class IdleServerShown(ResponseShape, frozen=True, kw_only=True):
    """A server without any use since then."""

    server_id: str
    last_used_ms: int | None
    """Null: never within the kept audit log."""


class LearnResponse(least_privilege.TaskLesson, ResponseShape, frozen=True, kw_only=True):
    """The least policy for what a task used, and a plan of the change. Nothing has been changed."""

    task_id: str
    since_ms: int
    plan: PlanResponse


class UnusedResponse(ResponseShape, frozen=True, kw_only=True):
    """Unused grants, by task and key."""

    revision: Revision
    """The registry revision served."""
    since_ms: int
    audit_begins_ms: int | None
    """The time of the oldest kept audit event. Null if no event is kept."""
    holders: list[least_privilege.HolderGrant]
    servers: list[IdleServerShown]
    """Unused servers, on the first page only. Empty if the query names a task or key."""
    warnings: list[str]
    next_cursor: NextCursor


LEARN_DAYS: Final = 7  # a week of work has the usual calls
UNUSED_DAYS: Final = 30  # so that monthly jobs count as used
MAX_SERVERS: Final = 1_000  # as the other lists of a response


_LEARN_QUERY: Final = (
    Parameter("since", f"Start of the usage, in unix ms. Default: {LEARN_DAYS} days ago.", "number"),
    Parameter("deny_all", "If nothing was used, return a policy that denies everything.", "flag"),
)
_UNUSED_QUERY: Final = (
    *PAGING,
    Parameter("since", f"Unused since this time, in unix ms. Default: {UNUSED_DAYS} days ago.", "number"),
    Parameter("kind", "Only holders of this kind: `task` or `key`."),
    Parameter("task", "Only the task with this id, with all its unused tools."),
    Parameter("key", "Only the key with this id, with all its unused tools."),
)


@get("/admin/api/tasks/{task_id}/learn", "viewer", "Learn the least policy of a task", query=_LEARN_QUERY)
async def learn_policy(control: Control, call: RestCall[None]) -> LearnResponse:
    """The least policy that allows everything the task used, and a plan of the change.

    Nothing is changed: apply `record` with the id of `plan`. Only calls under this task count, and no denied
    ones. If the task's policy is not enforced, calls that it would have denied count. If nothing was used,
    the request fails, unless `deny_all` is set.
    """
    task_id, since_ms = call.ids["task_id"], _parse_since(control, call, LEARN_DAYS)
    may_be_empty = call.flag("deny_all")
    learned, planned = await least_privilege.learn_task(
        control, call.caller, task_id, since_ms=since_ms, may_be_empty=may_be_empty
    )
    return LearnResponse.of(learned, task_id=task_id, since_ms=since_ms, plan=await show_plan(planned))


@get("/admin/api/unused", "viewer", "Show unused grants", query=_UNUSED_QUERY, errors=(NotFound,))
async def list_unused(control: Control, call: RestCall[None]) -> UnusedResponse:
    """What each task grants, and each key allows at most, that no caller has used since `since`.

    Sorted by kind and id. The first page also lists unused servers.
    """
    page, snapshot = call.page(), control.gateway.snapshot
    task_id, key_id, kind = (call.query.get(name) for name in ("task", "key", "kind"))
    if kind not in (None, "task", "key"):
        raise InvalidRequest("`kind` must be `task` or `key`")
    holders = least_privilege.find_holders(snapshot, task_id=task_id, key_id=key_id)
    shown, next_cursor = page.cut([one for one in holders if kind in (None, one.kind)], str)
    uses = await least_privilege.read_usage(control, since_ms=_parse_since(control, call, UNUSED_DAYS))
    is_one = task_id is not None or key_id is not None
    most = None if is_one else MAX_NAMED
    found = await least_privilege.weigh_holders(snapshot, shown, uses, max_tools=most)
    servers = [] if is_one or page.after else least_privilege.find_idle_servers(snapshot, uses)[:MAX_SERVERS]
    return UnusedResponse.of(
        uses,
        revision=snapshot.revision,
        audit_begins_ms=uses.begins_ms,
        holders=found,
        servers=[IdleServerShown(server_id=one, last_used_ms=last_ms) for one, last_ms in servers],
        next_cursor=next_cursor,
    )


class KeyUsage(least_privilege.KeyReach, ResponseShape, frozen=True, kw_only=True):
    """What one key can reach, and when it was used last."""

    key_id: str
    changed_at_ms: int
    """When the key was created, or its quotas were set."""
    last_used_ms: int | None
    """Its newest kept audit event. Null: no event is kept."""


class KeyUsageResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of keys with their reach and last use, sorted by id."""

    revision: Revision
    """The registry revision served."""
    audit_begins_ms: int | None
    """The time of the oldest kept audit event. Null if no event is kept."""
    registered_tools: int
    """The number of registered tools, to compare with."""
    keys: list[KeyUsage]
    next_cursor: NextCursor


_KEY_USAGE_QUERY: Final = (*PAGING, Parameter("key", "Only the key with this id."))


@get("/admin/api/key-usage", "viewer", "Show the reach and last use of keys", query=_KEY_USAGE_QUERY)
async def list_key_usage(control: Control, call: RestCall[None]) -> KeyUsageResponse:
    """What each key can reach at most, and when it was last used, as far as the audit log reaches back."""
    page, only, snapshot = call.page(), call.query.get("key"), control.gateway.snapshot
    stored = (await control.store.list("key")).records
    keys, next_cursor = page.cut([one for one in stored if only in (None, one.id)], lambda one: one.id)
    begins_ms, *last_ms = await control.audit_index.last_use([f"key:{one.id}" for one in keys])

    def weigh() -> list[KeyUsage]:
        # Most keys share a ceiling, and each takes a tenth of a second if there are ten thousand tools.
        weigh_ceiling = cache(partial(least_privilege.weigh_ceiling, snapshot))
        callers = {key.key_id: key.ceiling for key in snapshot.keys.values() if key.role != "node"}
        return [
            KeyUsage.of(
                weigh_ceiling(callers[one.id]) if one.id in callers else least_privilege.NO_REACH,
                key_id=one.id,
                changed_at_ms=one.updated_at_ms,
                last_used_ms=last,
            )
            for one, last in zip(keys, last_ms, strict=True)
        ]

    return KeyUsageResponse(
        revision=snapshot.revision,
        audit_begins_ms=begins_ms,
        registered_tools=count_registered(snapshot).tools,
        keys=await asyncio.to_thread(weigh),
        next_cursor=next_cursor,
    )


def _parse_since(control: Control, call: RestCall[None], days: int) -> int:
    now_ms = control.clock_ms()
    since_ms = call.number_or("since", now_ms - days * DAY_MS)
    if since_ms >= now_ms:
        raise InvalidRequest("`since` must be in the past", hint="it is a time in unix milliseconds")
    return since_ms
