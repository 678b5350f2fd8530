"""When a server may be started again."""

from toolgate.upstream.limits import PoolLimits
from toolgate.upstream.restarts import Restarts

LIMITS = PoolLimits()


def waits_of(restarts: Restarts, *, failures: int, now_s: float = 0.0) -> list[float]:
    """The waits after so many failed starts, each made as soon as it may be."""
    waits = []
    for _ in range(failures):
        restarts.on_start(now_s)
        restarts.on_failed(now_s, is_fatal=False)
        waits.append(round(restarts.not_before_s - now_s, 3))
        now_s = restarts.not_before_s
    return waits


def test_the_wait_doubles_to_its_ceiling_and_the_sixth_start_waits_for_the_window() -> None:
    waits = waits_of(Restarts(LIMITS, lambda: 0.0), failures=12)

    assert waits == [0.1, 0.2, 0.4, 0.8, 8.5, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


def test_jitter_only_shortens_a_wait() -> None:
    assert waits_of(Restarts(LIMITS, lambda: 1.0), failures=3) == [0.075, 0.15, 0.3]


def test_a_thousand_failures_do_not_overflow() -> None:
    assert waits_of(Restarts(LIMITS, lambda: 0.0), failures=1000)[-1] == 30.0


def test_a_link_that_held_for_a_while_counts_as_a_first_failure() -> None:
    restarts = Restarts(LIMITS, lambda: 0.0)
    waits_of(restarts, failures=4)
    restarts.on_start(100.0)

    restarts.on_lost(110.0)

    assert (restarts.not_before_s, restarts.is_exhausted(110.0)) == (110.1, False)


def test_links_that_die_young_use_up_the_starts() -> None:
    restarts = Restarts(LIMITS, lambda: 0.0)
    for start_s in range(5):
        restarts.on_start(float(start_s))
        restarts.on_lost(start_s + 0.5)

    assert (restarts.is_exhausted(4.5), restarts.not_before_s) == (True, 10.0)


def test_a_fatal_failure_waits_half_a_minute_and_is_forgiven_on_request() -> None:
    restarts = Restarts(LIMITS, lambda: 0.0)
    restarts.on_start(0.0)

    restarts.on_failed(0.0, is_fatal=True)
    fatal = (restarts.is_fatal, restarts.not_before_s)
    restarts.forgive()

    assert fatal == (True, 30.0)
    assert (restarts.is_fatal, restarts.not_before_s) == (False, 0.0)


def test_only_starts_after_a_failure_are_restarts() -> None:
    restarts = Restarts(LIMITS, lambda: 0.0)

    for _ in range(3):
        restarts.on_start(0.0)
        restarts.forgive()
    restarts.on_lost(1.0)
    restarts.on_start(2.0)

    assert restarts.count == 1
