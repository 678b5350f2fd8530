"""What happened, for those who may see it: pages of events, one event's story, the tail, counts of calls."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolgate.audit.index.activity import Activity, VersionCalls
from toolgate.audit.index.index import AuditIndex
from toolgate.audit.queries import Filter, KeptEvent, parse_event_id
from toolgate.errors import NotFound
from toolgate.govern.control import Control
from toolgate.model.tasks import Profile

PAGE: Final = 100
MAX_EXPORT: Final = 100_000
"""Events in one export; `until` leads to the others."""
EXPORT_PAGE: Final = 1_000
"""Events that an export holds at a time."""
MAX_BUCKETS: Final = 500
LOOK_AGAIN_S: Final = 1.0
"""How late the tail is with what another replica has taken in."""


class Story(NamedTuple):
    """One event, and those around it."""

    event: KeptEvent
    around: Sequence[KeptEvent]


def index_of(control: Control) -> AuditIndex:
    """Where events are looked up. Raises NotFound."""
    if control.audit_index is None:
        raise NotFound("this process keeps no index of its audit log")
    return control.audit_index


async def read_story(control: Control, event_id: str) -> Story:
    """The event, and what its session, run, request or approval consists of beside. Raises NotFound."""
    index, named = index_of(control), parse_event_id(event_id)
    found = None if named is None else await index.find(*named)
    if found is None:
        raise NotFound(f"no event `{event_id[:40]}`", hint="old events are dropped: see `days` in `[audit]`")
    return Story(found, await index.around(found))


async def export_pages(
    control: Control, asked: Filter, *, most: int
) -> AsyncGenerator[Sequence[KeptEvent], None]:
    """All events that `asked` is for, the newest first, a page at a time, up to `most` of them."""
    index, before = index_of(control), None
    while most > 0:
        page = await index.page(asked, before=before, limit=min(EXPORT_PAGE, most))
        yield page
        most -= len(page)
        if len(page) < EXPORT_PAGE:
            return
        before = page[-1].place


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which calls are counted, and how finely."""

    asked: Filter
    since_ms: int
    until_ms: int
    buckets: int


async def read_activity(control: Control, span: Span) -> Activity:
    """The calls of that time, counted. One at a time: it looks at every call there is."""
    index = index_of(control)
    async with index.counting:
        return await index.activity(
            span.asked, since_ms=span.since_ms, until_ms=span.until_ms, buckets=span.buckets
        )


async def read_versions(
    control: Control, profile: Profile, *, since_ms: int, until_ms: int
) -> Sequence[VersionCalls]:
    """The calls of that time by the version of a profile that decided; its present versions always."""
    index = index_of(control)
    async with index.counting:
        found = await index.versions(profile.profile_id, since_ms=since_ms, until_ms=until_ms)
    present = {profile.version} | ({profile.rollout.version} if profile.rollout else set())
    silent = present - {one.version for one in found}
    return sorted([*found, *(VersionCalls(version, 0, 0, 0, None, None) for version in silent)])


class Tail:
    """Events as they come in, in the order in which they do. A wait that is cut off loses nothing."""

    def __init__(self, index: AuditIndex, asked: Filter, *, after: int) -> None:
        self._index = index
        self._asked = asked
        self._after = after

    def __aiter__(self) -> "Tail":
        return self

    async def __anext__(self) -> Sequence[KeptEvent]:
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
