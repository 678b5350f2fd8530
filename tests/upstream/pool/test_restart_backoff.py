"""When a server may be started again."""

import pytest

from toolgate.upstream.connection.contract import PoolLimits
from toolgate.upstream.pool.health import RestartBackoff

LIMITS = PoolLimits()


def restarts_of(*, jitter: float = 0.0, max_wait_s: float = LIMITS.backoff_max_s) -> RestartBackoff:
    return RestartBackoff(LIMITS, lambda: jitter, max_wait_s=max_wait_s)


def waits_of(restarts: RestartBackoff, *, failures: int, now_s: float = 0.0) -> list[float]:
    """The waits after so many failed starts, each made as soon as it may be."""
    waits = []
    for _ in range(failures):
        restarts.on_start(now_s)
        restarts.on_failed(now_s, is_fatal=False)
        waits.append(round(restarts.not_before_s - now_s, 3))
        now_s = restarts.not_before_s
    return waits


@pytest.mark.requirement("002-091")
def test_the_wait_doubles_to_its_ceiling_and_the_sixth_start_waits_for_the_window() -> None:
    waits = waits_of(restarts_of(), failures=12)

    assert waits == [0.1, 0.2, 0.4, 0.8, 8.5, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


def test_ups_4_a_server_behind_a_url_is_never_left_alone_for_ten_seconds() -> None:
    waits = waits_of(restarts_of(max_wait_s=LIMITS.reconnect_max_s), failures=100)

    assert (max(waits), waits[-1]) == (8.5, 8.0)


def test_ups_4_a_server_is_left_alone_for_as_long_as_it_asks_and_no_shorter_than_otherwise() -> None:
    restarts = restarts_of()
    waits = []
    for asked_s in (7.0, 0.0, 0.1):
        restarts.on_start(0.0)
        restarts.on_failed(0.0, is_fatal=False, delay_s=asked_s)
        waits.append(restarts.not_before_s)

    assert waits == [7.0, 0.2, 0.4]


def test_jitter_only_shortens_a_wait() -> None:
    assert waits_of(restarts_of(jitter=1.0), failures=3) == [0.075, 0.15, 0.3]


def test_a_thousand_failures_do_not_overflow() -> None:
    assert waits_of(restarts_of(), failures=1000)[-1] == 30.0


def test_a_link_that_held_for_a_while_counts_as_a_first_failure() -> None:
    restarts = restarts_of()
    waits_of(restarts, failures=4)
    restarts.on_start(100.0)

    restarts.on_lost(110.0)

    assert (restarts.not_before_s, restarts.is_exhausted(110.0)) == (110.1, False)


def test_links_that_die_young_use_up_the_starts() -> None:
    restarts = restarts_of()
    for start_s in range(5):
        restarts.on_start(float(start_s))
        restarts.on_lost(start_s + 0.5)

    assert (restarts.is_exhausted(4.5), restarts.not_before_s) == (True, 10.0)


def test_a_fatal_failure_waits_half_a_minute_and_is_forgiven_on_request() -> None:
    restarts = restarts_of()
    restarts.on_start(0.0)

    restarts.on_failed(0.0, is_fatal=True)
    fatal = (restarts.is_fatal, restarts.not_before_s)
    restarts.reset()

    assert fatal == (True, 30.0)
    assert (restarts.is_fatal, restarts.not_before_s) == (False, 0.0)


def test_only_starts_after_a_failure_are_restarts() -> None:
    restarts = restarts_of()

    for _ in range(3):
        restarts.on_start(0.0)
        restarts.reset()
    restarts.on_lost(1.0)
    restarts.on_start(2.0)

    assert restarts.count == 1
