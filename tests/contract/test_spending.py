"""What every store does with budgets over time: all who draw on one are never granted more than its limit."""

import asyncio
from pathlib import Path

import pytest

from tests.contract.stores import DEADLINE_S, DURABLE_STORES, Clock, open_postgres
from toolgate.model.principals import HolderUsage, LeaseGrant, LeaseRequest, QuotaHolder
from toolgate.registry.store import QuotaSource
from toolgate.registry.store.side_tables import KEEP_COUNTS_MS, QuotaLedger
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000
DAY_MS = 86_400_000
ADA = QuotaHolder("key", "ada")
NOW_MS = 20_000 * DAY_MS + 12_345
MINUTE = 20_000 * DAY_MS
PER_MINUTE = LeaseRequest(ADA, "calls_per_minute", 30)
TOKENS = LeaseRequest(ADA, "tokens_per_day", 1_000)


@pytest.fixture
def clock(lease_clock: Clock) -> Clock:
    lease_clock.now_ms = NOW_MS
    return lease_clock


@pytest.fixture
def spending(queue_store: Store, clock: Clock) -> QuotaLedger:
    return queue_store.spending


async def draw_all(bank: QuotaSource, wanted: LeaseRequest) -> list[int]:
    """The grants until there are no more."""
    grants = []
    async with asyncio.timeout(DEADLINE_S):
        while (amount := (await bank.draw([wanted]))[0].amount) > 0:
            grants.append(amount)
    return grants


async def test_grants_are_small_and_come_to_exactly_the_limit(spending: QuotaLedger) -> None:
    grants = await draw_all(spending, PER_MINUTE)

    assert grants == [3, 2, 2, 2, 2, *[1] * 19]
    assert await spending.draw([PER_MINUTE]) == [LeaseGrant(0, MINUTE, MINUTE_MS - 12_345)]
    assert await spending.usage() == [HolderUsage(ADA, "calls_per_minute", MINUTE, 30)]


async def test_the_next_window_opens_with_all_there_is(spending: QuotaLedger, clock: Clock) -> None:
    await draw_all(spending, PER_MINUTE)
    clock.now_ms = MINUTE + MINUTE_MS

    assert await spending.usage() == []
    assert await spending.draw([PER_MINUTE]) == [LeaseGrant(3, MINUTE + MINUTE_MS, MINUTE_MS)]


async def test_budgets_and_holders_are_counted_apart_and_drawn_on_together(spending: QuotaLedger) -> None:
    draws = [
        LeaseRequest(QuotaHolder("task", "ada"), "calls_per_minute", 30),
        LeaseRequest(ADA, "calls_per_minute", 20),
        LeaseRequest(ADA, "calls_per_day", 10_000),
        LeaseRequest(ADA, "calls_per_minute", 20),
    ]

    drawn = await spending.draw(draws)

    assert [one.amount for one in drawn] == [3, 2, 50, 1]
    assert await spending.usage() == [
        HolderUsage(ADA, "calls_per_day", MINUTE, 50),
        HolderUsage(ADA, "calls_per_minute", MINUTE, 3),
        HolderUsage(QuotaHolder("task", "ada"), "calls_per_minute", MINUTE, 3),
    ]


async def test_what_is_returned_can_be_granted_again_in_its_own_window_only(
    spending: QuotaLedger, clock: Clock
) -> None:
    await draw_all(spending, PER_MINUTE)

    assert await spending.draw([PER_MINUTE._replace(returned=2, window_ms=MINUTE)]) == [
        LeaseGrant(0, MINUTE, MINUTE_MS - 12_345)
    ]
    assert await draw_all(spending, PER_MINUTE) == [1, 1]
    clock.now_ms += MINUTE_MS
    await spending.draw([PER_MINUTE])
    await spending.draw([PER_MINUTE._replace(returned=3, window_ms=MINUTE)])
    assert [one.used for one in await spending.usage()] == [3]
    await spending.draw([PER_MINUTE._replace(returned=9, window_ms=MINUTE + MINUTE_MS)])
    assert [one.used for one in await spending.usage()] == [0]


async def test_tokens_are_counted_as_they_are_reported(spending: QuotaLedger, clock: Clock) -> None:
    left_ms = DAY_MS - 12_345

    assert await spending.draw([TOKENS]) == [LeaseGrant(1_000, MINUTE, left_ms)]
    assert await spending.draw([TOKENS._replace(spent=400)]) == [LeaseGrant(600, MINUTE, left_ms)]
    assert await spending.draw([TOKENS._replace(spent=700)]) == [LeaseGrant(-100, MINUTE, left_ms)]
    clock.now_ms += DAY_MS
    assert await spending.draw([TOKENS]) == [LeaseGrant(1_000, MINUTE + DAY_MS, left_ms)]


async def test_a_limit_that_changes_holds_at_once(spending: QuotaLedger) -> None:
    await draw_all(spending, PER_MINUTE)

    assert await draw_all(spending, PER_MINUTE._replace(limit=20)) == []
    assert await draw_all(spending, PER_MINUTE._replace(limit=32)) == [1, 1]


async def test_counts_of_windows_long_over_are_forgotten(spending: QuotaLedger, clock: Clock) -> None:
    await spending.draw([PER_MINUTE, TOKENS._replace(spent=5)])
    clock.now_ms += KEEP_COUNTS_MS - DAY_MS
    await spending.draw([PER_MINUTE])
    clock.now_ms = MINUTE + KEEP_COUNTS_MS + 1
    await spending.forget()
    clock.now_ms = NOW_MS

    assert await spending.usage() == []


async def test_many_at_once_are_granted_the_limit_together_and_no_more(spending: QuotaLedger) -> None:
    async with asyncio.timeout(DEADLINE_S):
        grants = await asyncio.gather(*(draw_all(spending, PER_MINUTE) for _ in range(8)))

    assert sum(map(sum, grants)) == 30


@pytest.mark.parametrize("kind", DURABLE_STORES)
async def test_a_restart_keeps_the_count(kind: str, tmp_path: Path, clock: Clock) -> None:
    async with DURABLE_STORES[kind](tmp_path, clock) as store:
        await draw_all(store.spending, PER_MINUTE)
    async with DURABLE_STORES[kind](tmp_path, clock) as store:
        assert await draw_all(store.spending, PER_MINUTE) == []


async def test_replicas_grant_the_limit_together_and_no_more(tmp_path: Path, clock: Clock) -> None:
    """Each draws on two budgets at once, in another order: they stand in line, and no one waits for ever."""
    day = LeaseRequest(ADA, "calls_per_day", 40)

    async def draw_both(bank: QuotaSource, draws: list[LeaseRequest]) -> int:
        total = 0
        while amount := sum(one.amount for one in await bank.draw(draws)):
            total += amount
        return total

    async with open_postgres(tmp_path, clock) as one, open_postgres(tmp_path, clock) as other:
        async with asyncio.timeout(DEADLINE_S):
            totals = await asyncio.gather(
                *(draw_both(one.spending, [PER_MINUTE, day]) for _ in range(4)),
                *(draw_both(other.spending, [day, PER_MINUTE]) for _ in range(4)),
            )

    assert sum(totals) == 30 + 40
