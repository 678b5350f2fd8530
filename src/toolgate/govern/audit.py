"""The audit as people query it: one event, exports, the tail, usage of tools, and usage of quotas.

Reads the audit index and never writes. Queries that scan every call run one at a time.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from toolgate.audit.index.activity import VersionCalls
from toolgate.audit.index.index import AuditIndex
from toolgate.audit.index.statements import IndexExtent, ToolUse
from toolgate.audit.index.tables import EventFilter, IndexedEvent, parse_event_id
from toolgate.errors import NotFound
from toolgate.gateway.scope.routes import normalize_uri
from toolgate.govern.control import Control
from toolgate.model.names import MAX_AUDITED_NAME, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import HolderQuotas, QuotaHolder, QuotaName
from toolgate.model.tasks import Profile
from toolgate.model.tools import Snapshot
from toolgate.policy.admission import list_limits, window_at
from toolgate.policy.layers import parse_task_policy

PAGE: Final = 100
MAX_EXPORT: Final = 100_000
"""Events in one export; `until` selects earlier ones."""
EXPORT_PAGE: Final = 1_000
"""Events of an export in memory at a time."""
MAX_BUCKETS: Final = 500
LOOK_AGAIN_S: Final = 1.0
"""How late the tail is with events that another replica indexed."""


async def read_event(control: Control, event_id: str) -> tuple[IndexedEvent, Sequence[IndexedEvent]]:
    """An event, and the others of its session, run, request or approval. Raises NotFound."""
    index, named = control.audit_index, parse_event_id(event_id)
    found = None if named is None else await index.find(*named)
    if found is None:
        raise NotFound(f"no event `{event_id[:40]}`", hint="old events are dropped: see `days` in `[audit]`")
    return found, await index.around(found)


async def export_pages(
    control: Control, only: EventFilter, *, most: int
) -> AsyncGenerator[Sequence[IndexedEvent], None]:
    """The events that `only` admits, the newest first, a page at a time, `most` at most."""
    index, before = control.audit_index, None
    while most > 0:
        page = await index.page(only, before=before, limit=min(EXPORT_PAGE, most))
        yield page
        most -= len(page)
        if len(page) < EXPORT_PAGE:
            return
        before = page[-1].place


async def read_version_calls(
    control: Control, profile: Profile, *, since_ms: int, until_ms: int
) -> Sequence[VersionCalls]:
    """The calls by the version of a profile that decided. Its present versions are always included."""
    index = control.audit_index
    async with index.counting:
        found = await index.versions(profile.profile_id, since_ms=since_ms, until_ms=until_ms)
    present = {profile.version} | ({profile.rollout.version} if profile.rollout else set())
    silent = present - {one.version for one in found}
    return sorted([*found, *(VersionCalls(version, 0, 0, 0, None, None) for version in silent)])


class EventTail:
    """Events as they are indexed, in that order. A cancelled wait loses nothing."""

    def __init__(self, index: AuditIndex, only: EventFilter, *, after: int) -> None:
        self._index = index
        self._only = only
        self._after = after

    def __aiter__(self) -> "EventTail":
        return self

    async def __anext__(self) -> Sequence[IndexedEvent]:
        """The next events, at least one."""
        while True:
            news = self._index.news()
            found = await self._index.following(self._only, after=self._after, limit=EXPORT_PAGE)
            self._after = found.position
            if found.events:
                return found.events
            # Events of this process wake it; those of other replicas are found by looking again.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await news.wait()


FEW_CALLS: Final = 20
"""With fewer calls, rarely needed tools are likely to be missing."""


class ToolUsage(NamedTuple):
    """How one tool, prompt or resource was used."""

    calls: int
    """In the queried time."""
    last_ms: int
    """In all indexed events."""


def group_by_tool(uses: Iterable[ToolUse]) -> Mapping[ToolRef, ToolUsage]:
    """Uses by tool, of all users. A name that the audit truncated ends with `*`."""
    found: dict[ToolRef, ToolUsage] = {}
    for use in uses:
        name = f"{use.tool}*" if len(use.tool) >= MAX_AUDITED_NAME else use.tool
        ref = ToolRef(use.server_id, name)
        known = found.get(ref, ToolUsage(0, 0))
        found[ref] = ToolUsage(known.calls + use.calls, max(known.last_ms, use.last_ms))
    return found


def with_plain_uris(refs: Iterable[ToolRef]) -> Iterable[ToolRef]:
    """`refs`, and resources also with normalized URIs: rules match both."""
    for ref in refs:
        yield ref
        if kind_of(ref.name) == RESOURCE:
            plain = normalize_uri(ref.name[len(RESOURCE) :])
            if plain:
                yield ToolRef(ref.server_id, RESOURCE + plain)


async def read_extent(
    index: AuditIndex, *, since_ms: int, until_ms: int
) -> tuple[IndexExtent, Sequence[str]]:
    """How much of the time is indexed, with a warning for each gap."""
    extent = await index.extent(since_ms=since_ms, until_ms=until_ms)
    return extent, tuple(_gaps(extent, since_ms))


def _gaps(extent: IndexExtent, since_ms: int) -> Iterable[str]:
    if extent.begins_ms is None:
        yield "the audit is empty: no usage is known"
    elif extent.begins_ms > since_ms:
        yield f"the audit begins on {format_day(extent.begins_ms)}: earlier usage is not known"
    if extent.silent_days:
        yield (
            f"{extent.silent_days} of {extent.days} days have no events:"
            " either no one called, or a node's log is missing"
        )


def format_day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y-%m-%d}"


class QuotaUsage(NamedTuple):
    """How much of one quota its holder used in the current window."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    used: int
    """Including what nodes have leased and not used yet."""
    resets_at_ms: int


async def list_quota_usage(control: Control) -> list[QuotaUsage]:
    """Every quota that is set, sorted by holder and name."""
    counts = {(one.holder, one.budget): one.used for one in await control.store.spending.usage()}
    now_ms = control.clock_ms()
    return sorted(
        QuotaUsage(
            quotas.holder,
            budget,
            limit,
            counts.get((quotas.holder, budget), 0),
            window_at(budget, now_ms).ends_ms,
        )
        for quotas in _list_quotas(control.gateway.snapshot)
        for budget, limit in list_limits(quotas.budgets).items()
    )


def _list_quotas(snapshot: Snapshot) -> Iterator[HolderQuotas]:
    for key in snapshot.keys.values():
        if key.budgets is not None:
            yield HolderQuotas(QuotaHolder("key", key.key_id), key.budgets)
    for task in snapshot.tasks.values():
        budgets = parse_task_policy(task).budgets if "mcp.budgets" in task.config else None
        if budgets is not None:
            yield HolderQuotas(QuotaHolder("task", task.task_id), budgets)
