"""Queries of the audit: one event, exports, the tail, and usage of quotas.

Reads the audit index and never writes. Queries that scan every call run one at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolgate.audit.index.activity import VersionCalls
from toolgate.audit.index.tables import EventFilter, IndexedEvent, parse_event_id
from toolgate.errors import NotFound
from toolgate.govern.control import Control
from toolgate.model.principals import QuotaHolder, QuotaName
from toolgate.model.tasks import Profile
from toolgate.policy.admission import list_limits, window_at
from toolgate.policy.layers import parse_task_policy

PAGE: Final = 100  # some screens of the console
MAX_BUCKETS: Final = 500  # a choice: more columns than a chart can show


async def read_event(control: Control, event_id: str) -> tuple[IndexedEvent, Sequence[IndexedEvent]]:
    """An event, and the others of its session, run, request or approval. Raises NotFound."""
    index, named = control.audit_index, parse_event_id(event_id)
    found = None if named is None else await index.find(*named)
    if found is None:
        raise NotFound(f"no event `{event_id[:40]}`", hint="the index drops events after `audit.days`")
    return found, await index.around(found)


async def export_pages(control: Control, only: EventFilter) -> AsyncGenerator[Sequence[IndexedEvent], None]:
    """The events that match `only`, newest first, a page at a time, up to `max_export`."""
    index, limits, before = control.audit_index, control.limits, None
    left = limits.max_export
    while left > 0:
        page = await index.page(only, before=before, limit=min(limits.export_page, left))
        yield page
        left -= len(page)
        if len(page) < limits.export_page:
            return
        before = page[-1].place


async def read_version_calls(
    control: Control, profile: Profile, *, since_ms: int, until_ms: int
) -> Sequence[VersionCalls]:
    """Calls by the version of a profile that decided. Always includes the profile's current versions."""
    index = control.audit_index
    async with index.counting:
        found = await index.versions(profile.profile_id, since_ms=since_ms, until_ms=until_ms)
    present = {profile.version} | ({profile.rollout.version} if profile.rollout else set())
    silent = present - {one.version for one in found}
    return sorted([*found, *(VersionCalls(version, 0, 0, 0, None, None) for version in silent)])


@dataclass(slots=True)
class EventTail:
    """Events in the order in which they are indexed. A cancelled wait loses no event."""

    control: Control
    only: EventFilter
    after: int

    def __aiter__(self) -> "EventTail":
        return self

    async def __anext__(self) -> Sequence[IndexedEvent]:
        index, limits = self.control.audit_index, self.control.limits
        while True:
            news = index.news
            found = await index.following(self.only, after=self.after, limit=limits.export_page)
            self.after = found.position
            if found.events:
                return found.events
            # Events of this process wake it; it polls for those of other replicas.
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.tail_poll_s):
                    await news.wait()


class QuotaUsage(NamedTuple):
    """The usage of one quota in the current window."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    used: int
    """Includes calls that nodes have leased and not used so far."""
    resets_at_ms: int


async def list_quota_usage(control: Control) -> list[QuotaUsage]:
    """All quotas with their usage, sorted by holder and name."""
    counts = {(one.holder, one.budget): one.used for one in await control.store.spending.usage()}
    now_ms, snapshot = control.clock_ms(), control.gateway.snapshot
    held = [(QuotaHolder("key", key.key_id), key.budgets) for key in snapshot.keys.values()]
    held += [
        (QuotaHolder("task", task.task_id), parse_task_policy(task).budgets)
        for task in snapshot.tasks.values()
        if "mcp.budgets" in task.config
    ]
    return sorted(
        QuotaUsage(holder, budget, limit, counts.get((holder, budget), 0), window_at(budget, now_ms).ends_ms)
        for holder, budgets in held
        if budgets is not None
        for budget, limit in list_limits(budgets).items()
    )
