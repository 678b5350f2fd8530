"""The lag of the event loop, on one whose time the test moves."""

import asyncio

import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.app.observability import WINDOW_S, open_loop_lag
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
    clock, metrics = Clock(), Metrics()

    def longest_ms() -> float:
        lines = metrics.render().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("toolgate_loop_lag_ms"))

    with open_loop_lag(metrics, clock):
        await pass_time(1.0)
        at_rest_ms = longest_ms()
        clock.stood_still_s += 0.3
        await pass_time(1.0)
        clock.stood_still_s += 0.2
        await pass_time(WINDOW_S - 2.0)
        seen_ms = longest_ms()
        await pass_time(2 * WINDOW_S)

    assert [at_rest_ms, seen_ms, longest_ms()] == pytest.approx([0.0, 300.0, 0.0], abs=1e-3)


async def test_it_is_shown_among_the_metrics_while_it_is_watched() -> None:
    metrics = Metrics()
    with open_loop_lag(metrics):
        shown = metrics.render().decode()

    assert "\ntoolgate_loop_lag_ms 0.0\n" in shown
