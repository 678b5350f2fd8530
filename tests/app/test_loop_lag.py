"""The lag of the event loop, on one whose time the test moves."""

import asyncio

import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.app.observability import WINDOW_S, LoopLagMonitor, open_loop_lag
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


class Clock:
    """The time of day; it advances while the loop is blocked."""

    stood_still_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.stood_still_s


async def test_the_longest_delay_is_kept_for_half_a_minute_and_then_forgotten() -> None:
    clock = Clock()
    lag = LoopLagMonitor(clock)
    await pass_time(1.0)
    at_rest_s = lag.longest_s
    clock.stood_still_s += 0.3
    await pass_time(1.0)
    clock.stood_still_s += 0.2
    await pass_time(WINDOW_S - 2.0)
    seen_s = lag.longest_s
    await pass_time(2 * WINDOW_S)
    lag.close()

    assert [at_rest_s, seen_s, lag.longest_s] == pytest.approx([0.0, 0.3, 0.0], abs=1e-6)


async def test_it_is_shown_among_the_metrics_while_it_is_watched() -> None:
    metrics = Metrics()
    with open_loop_lag(metrics):
        shown = metrics.render().decode()

    assert "\ntoolgate_loop_lag_ms 0.0\n" in shown
