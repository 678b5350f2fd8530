"""Calls come first: who follows the log waits while the process is busy, and not for ever."""

import pytest

from toolgate.audit.log.journal import FOLLOW_SHARE, MAX_PAUSE_S, Backpressure


@pytest.mark.parametrize(
    ("used_s", "behind", "pause_s"),
    [
        pytest.param(0.01, 100, 0.0, id="idle"),
        pytest.param(0.09, 100, 0.01 / FOLLOW_SHARE - 0.01, id="busy"),
        pytest.param(0.09, 501, 0.0, id="busy, and too much would be lost"),
    ],
)
def test_following_gives_way_to_calls_until_too_much_is_behind(
    used_s: float, behind: int, pause_s: float
) -> None:
    clock, processor = iter([0.0, 0.1]), iter([5.0, 5.0 + used_s])
    giving_way = Backpressure(clock_s=lambda: next(clock), processor_s=lambda: next(processor))

    assert giving_way.pause_s(0.01, behind=behind, most=500) == pytest.approx(pause_s)


def test_what_took_long_does_not_wait_for_ever() -> None:
    clock, processor = iter([0.0, 10.0]), iter([0.0, 10.0])
    giving_way = Backpressure(clock_s=lambda: next(clock), processor_s=lambda: next(processor))

    assert giving_way.pause_s(9.0, behind=1, most=2) == MAX_PAUSE_S
