"""The queue of invocations in a dict: for tests, and for trying things out."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from toolgate.model.invocations import ENDED, MAX_LOG_LINES, Invocation, InvocationResult, LogLine
from toolgate.registry.database.change_count import ChangeCounter
from toolgate.registry.invocations import contract as steps
from toolgate.registry.invocations.contract import (
    KEEP_ENDED,
    LEASE_MS,
    InvocationCreation,
    InvocationEntry,
    InvocationProgress,
    LeaseVerdict,
)


@dataclass
class _Log:
    entry: InvocationEntry
    lines: list[LogLine] = field(default_factory=list)


class MemoryInvocations:
    """Entries by id, in the order they were made. No method but the waiting ones suspends."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._since_ms = clock_ms()
        self._kept: dict[str, _Log] = {}
        self._count = ChangeCounter()
        self._queued = ChangeCounter()

    async def create(self, invocation: Invocation) -> InvocationCreation:
        if (earlier := self._earlier(invocation)) is not None:
            steps.check_same_input(earlier, is_same_input=earlier.input == invocation.input)
            return InvocationCreation(earlier, is_new=False)
        if invocation.invocation_id in self._kept:
            raise steps.duplicate_invocation(invocation.invocation_id)
        steps.check_room(await self.waiting())
        self._kept[invocation.invocation_id] = _Log(InvocationEntry(invocation=invocation))
        self._on_news(is_queued=True)
        return InvocationCreation(invocation, is_new=True)

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        claim = partial(self._claim, node_id, limit=limit)
        return await steps.claim_or_wait(wait_s, claim, self._queued)

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        log = self._kept.get(invocation_id)
        if log is None:
            return "lost"
        heard = steps.apply_report(log.entry, attempt, lines=lines, ending=ending, now_ms=self._clock_ms())
        if heard.entry is not None:
            log.entry = heard.entry
            log.lines = list(steps.keep_newest_lines([*log.lines, *heard.lines]))
            if lines or ending:
                self._on_news(is_queued=log.entry.invocation.state == "queued")
        return heard.verdict

    async def cancel(self, invocation_id: str) -> Invocation:
        log = self._kept.get(invocation_id)
        if log is None:
            raise steps.invocation_not_found(invocation_id)
        log.entry = steps.cancel_entry(log.entry, self._clock_ms())
        self._on_news(is_queued=False)
        return log.entry.invocation

    async def get(self, invocation_id: str) -> Invocation | None:
        log = self._kept.get(invocation_id)
        return None if log is None else log.entry.invocation

    async def list(
        self,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        newest_first = [log.entry.invocation for log in reversed(self._kept.values())]
        if before is not None:
            ids = [one.invocation_id for one in newest_first]
            newest_first = newest_first[ids.index(before) + 1 :] if before in ids else []
        wanted = (
            one
            for one in newest_first
            if task_id in {None, one.task_id} and principal_id in {None, one.principal.id}
        )
        return [_light(one) for one in islice(wanted, limit)]

    async def marks(self, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
        entries = [self._kept[one].entry for one in ids if one in self._kept]
        return {
            one.invocation.invocation_id: InvocationProgress(
                one.invocation.state, one.invocation.attempt, one.lines
            )
            for one in entries
        }

    async def waiting(self) -> int:
        return sum(1 for _ in self._in_state("queued"))

    async def lines(
        self, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        log = self._kept.get(invocation_id)
        return [] if log is None else [line for line in log.lines if line.seq > after][:limit]

    async def forget(self, *, now_ms: int) -> None:
        kept: Counter[str] = Counter()
        for one in [log.entry.invocation for log in reversed(self._kept.values())]:
            if one.state in ENDED:
                kept[one.task_id] += 1
                is_old = (one.ended_ms or 0) < steps.retention_cutoff_ms(now_ms)
                if is_old or kept[one.task_id] > KEEP_ENDED:
                    del self._kept[one.invocation_id]

    async def changed(self, seen: int) -> int:
        return await self._count.changed(seen)

    def close(self) -> None:
        """End those who wait."""
        self._count.close()
        self._queued.close()

    async def _claim(self, node_id: str, *, limit: int) -> Sequence[Invocation]:
        now_ms = self._clock_ms()
        if now_ms - self._since_ms >= LEASE_MS:
            for log in self._kept.values():
                if steps.is_lease_expired(log.entry.invocation, now_ms):
                    log.entry = steps.expire_lease(log.entry, now_ms)
                    self._on_news(is_queued=False)
        chosen = self._next()[:limit]
        for log in chosen:
            log.entry = steps.lease_entry(log.entry, node_id=node_id, now_ms=now_ms)
        if chosen:
            self._on_news(is_queued=False)
        return [log.entry.invocation for log in chosen]

    def _next(self) -> Sequence[_Log]:
        running = Counter(log.entry.invocation.task_id for log in self._in_state("running"))
        queued = ((log.entry.invocation.task_id, log) for log in self._in_state("queued"))
        return steps.order_fairly(queued, running)

    def _in_state(self, state: str) -> Iterator[_Log]:
        return (log for log in self._kept.values() if log.entry.invocation.state == state)

    def _earlier(self, new: Invocation) -> Invocation | None:
        if new.idempotency_key is None:
            return None
        key = (new.principal.id, new.task_id, new.idempotency_key)
        every = (log.entry.invocation for log in self._kept.values())
        return next(
            (one for one in every if (one.principal.id, one.task_id, one.idempotency_key) == key), None
        )

    def _on_news(self, *, is_queued: bool) -> None:
        self._count.increment()
        if is_queued:
            self._queued.increment()


def _light(invocation: Invocation) -> Invocation:
    ending = invocation.ending
    if ending is not None:
        ending = replace(ending, stdout=b"", stderr=b"")
    return replace(invocation, input=b"", ending=ending)
