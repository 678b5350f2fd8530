"""Budgets over time: which apply, when they open again, and how much is handed out at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.model.principals import (
    MAX_CALLS,
    HolderQuotas,
    LeaseGrant,
    LeaseRequest,
    Principal,
    QuotaCount,
    QuotaHolder,
    QuotaName,
    Quotas,
)
from toolgate.policy.admission import (
    MAX_GRANT,
    QuotaWindow,
    collect_quotas,
    grant_lease,
    is_narrower,
    list_limits,
    size_lease,
    window_at,
)
from toolgate.policy.layers import TaskPolicy

DAY_MS = 86_400_000
ADA = QuotaHolder("key", "ada")
TIGHT = Quotas(calls_per_minute=1)


@pytest.mark.parametrize(
    ("own", "task", "expected"),
    [
        pytest.param(None, None, (), id="no quotas"),
        pytest.param(None, TaskPolicy(task_id="t"), (), id="the task has none"),
        pytest.param(TIGHT, None, (HolderQuotas(ADA, TIGHT),), id="the key's"),
        pytest.param(
            None,
            TaskPolicy(task_id="t", budgets=TIGHT),
            (HolderQuotas(QuotaHolder("task", "t"), TIGHT),),
            id="the task's",
        ),
        pytest.param(
            TIGHT,
            TaskPolicy(task_id="t", budgets=TIGHT),
            (HolderQuotas(ADA, TIGHT), HolderQuotas(QuotaHolder("task", "t"), TIGHT)),
            id="both",
        ),
    ],
)
def test_bud_6_every_layer_that_sets_a_budget_applies(
    own: Quotas | None, task: TaskPolicy | None, expected: tuple[HolderQuotas, ...]
) -> None:
    principal = Principal(id="key:ada", role="agent", budgets=own)

    assert collect_quotas(principal, task) == expected


def test_only_budgets_that_are_set_limit_anything() -> None:
    assert list_limits(Quotas(calls_per_day=3, tokens_per_day=9)) == {
        "calls_per_day": 3,
        "tokens_per_day": 9,
    }


@pytest.mark.parametrize(
    ("budget", "now_ms", "expected"),
    [
        ("calls_per_minute", 0, QuotaWindow(0, 60_000)),
        ("calls_per_minute", 59_999, QuotaWindow(0, 60_000)),
        ("calls_per_minute", 60_000, QuotaWindow(60_000, 120_000)),
        ("calls_per_day", DAY_MS - 1, QuotaWindow(0, DAY_MS)),
        ("tokens_per_day", DAY_MS, QuotaWindow(DAY_MS, 2 * DAY_MS)),
    ],
)
def test_windows_are_the_minutes_and_days_of_utc(
    budget: QuotaName, now_ms: int, expected: QuotaWindow
) -> None:
    assert window_at(budget, now_ms) == expected


@given(limit=st.integers(1, MAX_CALLS), used=st.integers(0, MAX_CALLS))
def test_a_grant_is_small_and_never_more_than_is_left(limit: int, used: int) -> None:
    granted = size_lease(limit, used)

    assert 0 <= granted <= min(max(limit - used, 0), MAX_GRANT)
    assert (granted > 0) == (used < limit)
    assert granted <= max((limit - used) // 10, 1)


@given(
    limit=st.integers(1, 200),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40_000)), max_size=60),
)
def test_within_no_window_is_more_granted_than_the_limit(limit: int, steps: list[tuple[int, int]]) -> None:
    """Whatever is returned, and however time goes by."""
    count, now_ms = QuotaCount(), 0
    held: dict[int, int] = {}
    for returned, passed_ms in steps:
        now_ms += passed_ms
        window_ms = window_at("calls_per_minute", now_ms).begins_ms
        back = min(returned, held.get(window_ms, 0))
        wanted = LeaseRequest(ADA, "calls_per_minute", limit, returned=back, window_ms=window_ms)
        count, drawn = grant_lease(count, wanted, now_ms)
        held[window_ms] = held.get(window_ms, 0) + drawn.amount - back

        assert held[window_ms] == count.used <= limit


def test_a_clock_that_is_put_back_opens_no_budget_a_second_time() -> None:
    wanted = LeaseRequest(ADA, "calls_per_day", 5)
    used_up = QuotaCount(2 * DAY_MS, 5)

    assert grant_lease(used_up, wanted, 2 * DAY_MS - 10) == (used_up, LeaseGrant(0, 2 * DAY_MS, DAY_MS + 10))
    assert (
        grant_lease(used_up, wanted, DAY_MS - 10)[1].amount == 1
    )  # it was wrong for long, and is right by now


def test_what_is_returned_of_another_window_counts_for_nothing() -> None:
    wanted = LeaseRequest(ADA, "calls_per_day", 9, returned=2, window_ms=0)

    assert grant_lease(QuotaCount(DAY_MS, 5), wanted, DAY_MS + 1) == (
        QuotaCount(DAY_MS, 5),
        LeaseGrant(0, DAY_MS, DAY_MS - 1),
    )


@pytest.mark.parametrize(
    ("budgets", "bounds", "expected"),
    [
        pytest.param(None, Quotas(calls_per_day=5), False, id="nothing is bounded"),
        pytest.param(Quotas(calls_per_day=5), Quotas(calls_per_day=5), True, id="as large"),
        pytest.param(Quotas(calls_per_day=6), Quotas(calls_per_day=5), False, id="larger"),
        pytest.param(Quotas(1, 5, 9), Quotas(calls_per_day=5), True, id="more of them"),
        pytest.param(Quotas(calls_per_minute=1), Quotas(calls_per_day=5), False, id="another"),
        pytest.param(None, Quotas(), True, id="no bounds"),
    ],
)
def test_adm_8_budgets_are_narrower_where_each_bound_is_kept(
    budgets: Quotas | None, bounds: Quotas, expected: bool
) -> None:
    assert is_narrower(budgets, bounds) == expected
