"""What happened, for those who may see it: pages of events, one event's story, the tail, counts of calls.

What was used, as policy names it; and what must be said of how much of it is known.

What is left of budgets over time: those that records set, beside what is counted of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from toolgate.audit.index.activity import Activity, VersionCalls
from toolgate.audit.index.index import AuditIndex
from toolgate.audit.index.statements import IndexExtent, ToolUse
from toolgate.audit.index.tables import EventFilter, IndexedEvent, parse_event_id
from toolgate.errors import NotFound
from toolgate.gateway.scope.resources import normalize_uri
from toolgate.govern.control import Control
from toolgate.model.names import MAX_AUDITED_NAME, RESOURCE, ToolRef, kind_of
from toolgate.model.quotas import HolderQuotas, QuotaHolder, QuotaName
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Profile
from toolgate.policy.admission import list_limits, window_at
from toolgate.policy.layers import parse_task_policy

PAGE: Final = 100
MAX_EXPORT: Final = 100_000
"""Events in one export; `until` leads to the others."""
EXPORT_PAGE: Final = 1_000
"""Events that an export holds at a time."""
MAX_BUCKETS: Final = 500
LOOK_AGAIN_S: Final = 1.0
"""How late the tail is with what another replica has taken in."""


class EventContext(NamedTuple):
    """One event, and those around it."""

    event: IndexedEvent
    around: Sequence[IndexedEvent]


async def read_event(control: Control, event_id: str) -> EventContext:
    """The event, and what its session, run, request or approval consists of beside. Raises NotFound."""
    index, named = control.audit_index, parse_event_id(event_id)
    found = None if named is None else await index.find(*named)
    if found is None:
        raise NotFound(f"no event `{event_id[:40]}`", hint="old events are dropped: see `days` in `[audit]`")
    return EventContext(found, await index.around(found))


async def export_pages(
    control: Control, asked: EventFilter, *, most: int
) -> AsyncGenerator[Sequence[IndexedEvent], None]:
    """All events that `asked` is for, the newest first, a page at a time, up to `most` of them."""
    index, before = control.audit_index, None
    while most > 0:
        page = await index.page(asked, before=before, limit=min(EXPORT_PAGE, most))
        yield page
        most -= len(page)
        if len(page) < EXPORT_PAGE:
            return
        before = page[-1].place


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityQuery:
    """Which calls are counted, and how finely."""

    asked: EventFilter
    since_ms: int
    until_ms: int
    buckets: int


async def read_activity(control: Control, span: ActivityQuery) -> Activity:
    """The calls of that time, counted. One at a time: it looks at every call there is."""
    index = control.audit_index
    async with index.counting:
        return await index.activity(
            span.asked, since_ms=span.since_ms, until_ms=span.until_ms, buckets=span.buckets
        )


async def read_version_calls(
    control: Control, profile: Profile, *, since_ms: int, until_ms: int
) -> Sequence[VersionCalls]:
    """The calls of that time by the version of a profile that decided; its present versions always."""
    index = control.audit_index
    async with index.counting:
        found = await index.versions(profile.profile_id, since_ms=since_ms, until_ms=until_ms)
    present = {profile.version} | ({profile.rollout.version} if profile.rollout else set())
    silent = present - {one.version for one in found}
    return sorted([*found, *(VersionCalls(version, 0, 0, 0, None, None) for version in silent)])


class EventTail:
    """Events as they come in, in the order in which they do. A wait that is cut off loses nothing."""

    def __init__(self, index: AuditIndex, asked: EventFilter, *, after: int) -> None:
        self._index = index
        self._asked = asked
        self._after = after

    def __aiter__(self) -> "EventTail":
        return self

    async def __anext__(self) -> Sequence[IndexedEvent]:
        """The next ones, at least one."""
        while True:
            news = self._index.news()
            found = await self._index.following(self._asked, after=self._after, limit=EXPORT_PAGE)
            self._after = found.position
            if found.events:
                return found.events
            # What is added here wakes it; what other replicas add is found by looking again.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await news.wait()


FEW_CALLS: Final = 20
"""So few tell little of what is needed."""


class ToolUsage(NamedTuple):
    """How one tool, prompt or resource was used."""

    calls: int
    """Since the time that is asked about."""
    last_ms: int
    """As far back as is known."""


def group_by_tool(uses: Iterable[ToolUse]) -> Mapping[ToolRef, ToolUsage]:
    """Uses by what was used, whoever it was by. A name that the audit has cut ends with `*`."""
    found: dict[ToolRef, ToolUsage] = {}
    for use in uses:
        name = f"{use.tool}*" if len(use.tool) >= MAX_AUDITED_NAME else use.tool
        ref = ToolRef(use.server_id, name)
        known = found.get(ref, ToolUsage(0, 0))
        found[ref] = ToolUsage(known.calls + use.calls, max(known.last_ms, use.last_ms))
    return found


def with_plain_uris(refs: Iterable[ToolRef]) -> Iterable[ToolRef]:
    """`refs`, and resources once more as plainly as they can be written: rules are held against both."""
    for ref in refs:
        yield ref
        if kind_of(ref.name) == RESOURCE:
            plain = normalize_uri(ref.name[len(RESOURCE) :])
            if plain:
                yield ToolRef(ref.server_id, RESOURCE + plain)


async def read_extent(
    index: AuditIndex, *, since_ms: int, until_ms: int
) -> tuple[IndexExtent, Sequence[str]]:
    """How much of that time is known, with a warning for each gap."""
    extent = await index.extent(since_ms=since_ms, until_ms=until_ms)
    return extent, tuple(_gaps(extent, since_ms))


def _gaps(extent: IndexExtent, since_ms: int) -> Iterable[str]:
    if extent.begins_ms is None:
        yield "the audit is empty: nothing is known of what was used"
    elif extent.begins_ms > since_ms:
        yield f"the audit begins on {format_day(extent.begins_ms)}: what was used before is not known"
    if extent.silent_days:
        yield (
            f"on {extent.silent_days} of {extent.days} days nothing at all is on record:"
            " either nobody called, or a node's log is missing"
        )


def format_day(at_ms: int) -> str:
    """The day, for people."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y-%m-%d}"


class QuotaUsage(NamedTuple):
    """One budget of one holder, in its newest window."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    used: int
    """With what nodes were granted and have not used yet."""
    resets_at_ms: int


async def list_quota_usage(control: Control) -> list[QuotaUsage]:
    """Every budget that is set, sorted by holder and budget."""
    counts = {(one.holder, one.budget): one.used for one in await control.store.spending.usage()}
    now_ms = control.clock_ms()
    return sorted(
        QuotaUsage(
            allowance.holder,
            budget,
            limit,
            counts.get((allowance.holder, budget), 0),
            window_at(budget, now_ms).ends_ms,
        )
        for allowance in _allowances(control.gateway.snapshot)
        for budget, limit in list_limits(allowance.budgets).items()
    )


def _allowances(snapshot: Snapshot) -> Iterator[HolderQuotas]:
    for key in snapshot.keys.values():
        if key.budgets is not None:
            yield HolderQuotas(QuotaHolder("key", key.key_id), key.budgets)
    for task in snapshot.tasks.values():
        budgets = parse_task_policy(task).budgets if "mcp.budgets" in task.config else None
        if budgets is not None:
            yield HolderQuotas(QuotaHolder("task", task.task_id), budgets)
