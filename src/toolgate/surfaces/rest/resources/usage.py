"""What was used: quotas, tokens that tools cost models, and calls over time."""

from datetime import UTC, datetime
from typing import Any, Final

from toolgate.audit.index.statements import DAY_MS, SUMS, TokenSums
from toolgate.audit.index.tables import EventFilter
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern.audit import MAX_BUCKETS, QuotaUsage, list_quota_usage
from toolgate.govern.control import Control
from toolgate.model.principals import HolderKind, QuotaName
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.audit import ActivityAnswer, parse_exact_filters, show_activity


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


class BudgetsAnswer(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by holder."""

    budgets: list[BudgetUsed]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


@get("/admin/api/budgets", "viewer", "Show budgets over time, and what is used of them", query=PAGING)
async def list_quotas(control: Control, call: RestCall[None]) -> BudgetsAnswer:
    """Every budget over time that a key or a task has, and what is used of it at all nodes together."""
    uses, more = parse_page(call).cut(await list_quota_usage(control), _sort_key)
    return BudgetsAnswer(
        budgets=[BudgetUsed.of(one, holder_kind=one.holder.kind, holder_id=one.holder.id) for one in uses],
        next_cursor=more,
    )


def _sort_key(use: QuotaUsage) -> str:
    return " ".join((*use.holder, use.budget))  # no id has a space, and it sorts before all they have


DAYS: Final = 7
MAX_DAYS: Final = 366


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


class TokensAnswer(ResponseShape, frozen=True, kw_only=True):
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
        Parameter(
            "days", f"How many days, today included: 1 to {MAX_DAYS}, {DAYS} by default.", form="number"
        ),
        Parameter("task", "Only this task. Empty: only callers without one."),
    ),
    errors=(NotFound,),
)
async def show_tokens(control: Control, call: RestCall[None]) -> TokensAnswer:
    """What lists of tools and results of calls cost models, and what smaller lists have saved.

    All are estimates, good for comparing. Nodes tell once a minute, so the newest may be missing.
    """
    days = call.count("days", default=DAYS, most=MAX_DAYS)
    today = control.clock_ms() // DAY_MS
    since = max(0, today - days + 1)
    found = await control.audit_index.tokens(since_ms=since * DAY_MS, task_id=call.query.get("task"))
    total = TokenSums(*(sum(getattr(day, name) for day in found.days.values()) for name in SUMS))
    return TokensAnswer(
        since=_format_day(since),
        until=_format_day(today),
        days=[TokensOfDay(day=_format_day(day), **_encode_sums(sums)) for day, sums in found.days.items()],
        tasks=[TokensOfTask(task_id=task_id, **_encode_sums(sums)) for task_id, sums in found.tasks.items()],
        total=TokensShown(**_encode_sums(total)),
    )


def _encode_sums(sums: TokenSums) -> dict[str, int]:
    return sums._asdict() | {"saved_tokens": sums.full_tokens - sums.definition_tokens}


def _format_day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


BUCKETS: Final = 60
_MAX_MS: Final = 10**15


@get(
    "/admin/api/activity",
    "viewer",
    "Count the calls",
    query=(
        Parameter("since", "From this time on, in unix milliseconds.", form="number"),
        Parameter("until", "Up to this time, in unix milliseconds. Without it, now.", form="number"),
        Parameter("buckets", f"In how many spans: 1 to {MAX_BUCKETS}, {BUCKETS} by default.", form="number"),
        Parameter("server", "Only calls of this server."),
        Parameter("task", "Only calls of this task."),
    ),
    errors=(NotFound,),
)
async def read_activity_counts(control: Control, call: RestCall[None]) -> ActivityAnswer:
    """How many calls there were, how they went, what was slow and what was denied.

    Without `since`, of the last day. Counts are of the events that are kept.
    """
    until_ms = call.number("until")
    until_ms = control.clock_ms() if until_ms is None else until_ms
    since_ms = call.number("since")
    since_ms = max(0, until_ms - DAY_MS) if since_ms is None else since_ms
    buckets = call.count("buckets", default=BUCKETS, most=MAX_BUCKETS)
    if not since_ms < until_ms <= _MAX_MS:
        raise InvalidRequest("`since` must be before `until`", hint="both are times in unix milliseconds")
    only, index = EventFilter(equals=parse_exact_filters(call)), control.audit_index
    async with index.counting:  # it scans every call, so one query runs at a time
        activity = await index.activity(only, since_ms=since_ms, until_ms=until_ms, buckets=buckets)
    return show_activity(activity)


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (list_quotas, show_tokens, read_activity_counts)
