"""What is used over time, in a dict: for tests, and for trying things out."""

from collections.abc import Callable, Sequence

from toolgate.model.quotas import BudgetName, Count, Draw, Drawn, Holder, Usage
from toolgate.policy.allowances import draw, window_at
from toolgate.registry.quotas.contract import KEEP_MS


class MemorySpending:
    """Counts by holder and budget. No method suspends, so none can interleave."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._counts: dict[tuple[Holder, BudgetName], Count] = {}

    async def draw(self, draws: Sequence[Draw]) -> Sequence[Drawn]:
        now_ms = self._clock_ms()
        return [self._draw(one, now_ms) for one in draws]

    async def usage(self) -> Sequence[Usage]:
        now_ms = self._clock_ms()
        found = [Usage(*key, *count) for key, count in sorted(self._counts.items())]
        return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]

    async def forget(self) -> None:
        before_ms = self._clock_ms() - KEEP_MS
        self._counts = {key: count for key, count in self._counts.items() if count.window_ms >= before_ms}

    def _draw(self, wanted: Draw, now_ms: int) -> Drawn:
        key = (wanted.holder, wanted.budget)
        self._counts[key], drawn = draw(self._counts.get(key, Count()), wanted, now_ms)
        return drawn
