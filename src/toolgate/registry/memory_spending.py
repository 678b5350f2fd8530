"""What is used over time, in a dict: for tests, and for trying things out."""

from collections.abc import Callable, Sequence

from toolgate.model.quotas import HolderUsage, LeaseGrant, LeaseRequest, QuotaCount, QuotaHolder, QuotaName
from toolgate.policy.admission import grant_lease, window_at
from toolgate.registry.quotas.contract import KEEP_MS


class MemorySpending:
    """Counts by holder and budget. No method suspends, so none can interleave."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._counts: dict[tuple[QuotaHolder, QuotaName], QuotaCount] = {}

    async def draw(self, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        now_ms = self._clock_ms()
        return [self._draw(one, now_ms) for one in draws]

    async def usage(self) -> Sequence[HolderUsage]:
        now_ms = self._clock_ms()
        found = [HolderUsage(*key, *count) for key, count in sorted(self._counts.items())]
        return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]

    async def forget(self) -> None:
        before_ms = self._clock_ms() - KEEP_MS
        self._counts = {key: count for key, count in self._counts.items() if count.window_ms >= before_ms}

    def _draw(self, wanted: LeaseRequest, now_ms: int) -> LeaseGrant:
        key = (wanted.holder, wanted.budget)
        self._counts[key], drawn = grant_lease(self._counts.get(key, QuotaCount()), wanted, now_ms)
        return drawn
