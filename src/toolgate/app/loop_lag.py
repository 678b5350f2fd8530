"""How long the event loop keeps everybody waiting: the promise is 100 ms at most, and this is the measure."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from toolgate.telemetry import Metrics

LOOK_EVERY_S: Final = 0.05
WINDOW_S: Final = 30.0


class LoopLag:
    """The longest delay of a timer, in this window of time and the one before."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """`clock_s` is not the loop's own, which stands still while a turn lasts."""
        self._loop = asyncio.get_running_loop()
        self._clock_s = clock_s
        self._recent_s = self._former_s = 0.0
        self._window_ends_s = self._clock_s() + WINDOW_S
        self._arm()

    @property
    def longest_s(self) -> float:
        """Of the last half minute at least, and a minute at most."""
        return max(self._recent_s, self._former_s)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _arm(self) -> None:
        self._due_s = self._clock_s() + LOOK_EVERY_S
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        now_s = self._clock_s()
        self._recent_s = max(self._recent_s, now_s - self._due_s)
        if now_s >= self._window_ends_s:
            self._former_s, self._recent_s = self._recent_s, 0.0
            self._window_ends_s = now_s + WINDOW_S
        self._arm()


@contextmanager
def open_loop_lag(metrics: Metrics) -> Iterator[None]:
    """Watch the running loop, and show in `metrics` what was seen."""
    lag = LoopLag()
    metrics.gauge(
        "toolgate_loop_lag_ms",
        "Longest delay of the event loop in the last minute.",
        lambda: lag.longest_s * 1e3,
    )
    try:
        yield
    finally:
        lag.close()
