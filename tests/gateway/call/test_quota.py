"""Budgets over time at a node: what it was granted is spent, and nothing beyond it passes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.registry.memory_store import MemoryQuotaLedger
from toolgate.errors import BudgetExceeded, ControlUnavailable, ServerBusy, ServerUnavailable
from toolgate.gateway.call.quota import ExceededQuota, QuotaLeases, QuotaReservation
from toolgate.model.principals import HolderQuotas, LeaseGrant, LeaseRequest, QuotaHolder, Quotas
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
BEGIN_MS = 20_000 * DAY_MS
ADA = QuotaHolder("key", "ada")
TEAM = QuotaHolder("task", "team")
PER_MINUTE = (HolderQuotas(ADA, Quotas(calls_per_minute=30)),)
TOKENS = (HolderQuotas(ADA, Quotas(tokens_per_day=1_000)),)


class Clock:
    """One time for the bank and the nodes, which counts from the beginning of a day."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return BEGIN_MS + int(self.now_s * 1e3)

    def __call__(self) -> float:
        return self.now_s


class CountingBank:
    """Answers from memory, after others had a turn, unless it cannot be reached."""

    def __init__(self, clock: Clock) -> None:
        self.memory = MemoryQuotaLedger(clock.now_ms)
        self.lease_requests: list[LeaseRequest] = []
        self.is_reached = True
        self.lag_s = 0.0
        self._clock = clock

    async def draw(self, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        await asyncio.sleep(0)
        self.lease_requests += draws
        if not self.is_reached:
            raise ControlUnavailable("control cannot be reached")
        drawn = await self.memory.draw(draws)
        self._clock.now_s += self.lag_s
        return drawn

    async def used(self) -> dict[str, int]:
        return {f"{one.holder.kind}:{one.budget}": one.used for one in await self.memory.usage()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bank(clock: Clock) -> CountingBank:
    return CountingBank(clock)


def a_node(bank: CountingBank | None, clock: Clock, **options: Any) -> QuotaLeases:
    return QuotaLeases(bank, metrics=Metrics(), clock_s=clock, **options)


async def admitted(node: QuotaLeases, allowances: Sequence[HolderQuotas], *, tries: int) -> int:
    """How many of so many calls pass."""
    return sum([isinstance(await node.reserve(allowances), QuotaReservation) for _ in range(tries)])


async def test_all_nodes_together_pass_exactly_what_the_budget_allows(
    bank: CountingBank, clock: Clock
) -> None:
    nodes = [a_node(bank, clock) for _ in range(4)]
    passed = await asyncio.gather(
        *(admitted(node, PER_MINUTE, tries=10) for node in nodes for _ in range(10))
    )

    assert sum(passed) == 30
    assert await bank.used() == {"key:calls_per_minute": 30}


async def test_those_who_come_at_once_ask_once(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    allowances = (HolderQuotas(ADA, Quotas(calls_per_day=1_000)),)
    passed = await asyncio.gather(*(node.reserve(allowances) for _ in range(50)))

    assert Counter(map(type, passed)) == {QuotaReservation: 50}
    assert len(bank.lease_requests) == 1


async def test_a_used_up_quota_says_when_it_resets_and_resets_then(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    clock.now_s = 20.5
    assert await admitted(node, PER_MINUTE, tries=31) == 30

    refused = await node.reserve(PER_MINUTE)
    assert refused == ExceededQuota(ADA, "calls_per_minute", 30, retry_after_s=40)
    error = refused.error()
    assert isinstance(error, ServerBusy)
    assert error.data == {
        "budget": "calls_per_minute",
        "limit": 30,
        "holder": {"kind": "key", "id": "ada"},
        "retry_after_s": 40,
    }
    clock.now_s = 60.0
    assert await admitted(node, PER_MINUTE, tries=31) == 30


async def test_a_day_that_is_used_up_is_an_error_of_its_own(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    allowances = (HolderQuotas(TEAM, Quotas(calls_per_minute=2, calls_per_day=1)),)
    clock.now_s = 59.0
    assert await admitted(node, allowances, tries=1) == 1

    refused = await node.reserve(allowances)
    assert isinstance(refused, ExceededQuota)
    assert (refused.quota, refused.rule) == ("calls_per_day", "mcp.budgets: calls_per_day = 1")
    error = refused.error()
    assert isinstance(error, BudgetExceeded)
    assert error.retry_after_s == 86_400 - 59


async def test_refusals_are_counted_and_a_flood_of_them_does_not_reach_the_bank(
    bank: CountingBank, clock: Clock
) -> None:
    metrics = Metrics()
    node = QuotaLeases(bank, metrics=metrics, clock_s=clock)
    await admitted(node, PER_MINUTE, tries=30)
    bank.lease_requests.clear()
    assert await admitted(node, PER_MINUTE, tries=100) == 0
    asked = len(bank.lease_requests)
    clock.now_s += 1.0
    await node.reserve(PER_MINUTE)

    assert (asked, len(bank.lease_requests)) == (1, 2)
    assert metrics.budget_refusals == {"calls_per_minute": 101}


async def test_a_budget_that_is_raised_is_open_at_once(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    await admitted(node, PER_MINUTE, tries=31)

    assert await admitted(node, (HolderQuotas(ADA, Quotas(calls_per_minute=32)),), tries=9) == 2


async def test_a_budget_that_is_lowered_holds_at_once(bank: CountingBank, clock: Clock) -> None:
    """What was granted of the larger one is worth nothing."""
    node = a_node(bank, clock)
    large = (HolderQuotas(ADA, Quotas(calls_per_day=500, tokens_per_day=500)),)
    small = (HolderQuotas(ADA, Quotas(calls_per_day=1, tokens_per_day=500)),)
    assert await admitted(node, large, tries=1) == 1
    assert await admitted(node, small, tries=5) == 0

    node.record_tokens(large, 100)
    fewer_tokens = (HolderQuotas(ADA, Quotas(tokens_per_day=100)),)
    assert await admitted(node, fewer_tokens, tries=5) == 0


async def test_a_call_takes_of_the_key_and_of_the_task_or_of_neither(
    bank: CountingBank, clock: Clock
) -> None:
    node = a_node(bank, clock)
    both = (
        HolderQuotas(ADA, Quotas(calls_per_day=100)),
        HolderQuotas(TEAM, Quotas(calls_per_minute=2)),
    )
    assert await admitted(node, both, tries=5) == 2
    refused = await node.reserve(both)
    assert isinstance(refused, ExceededQuota)
    assert refused.holder == TEAM

    alone = (both[0],)
    assert await admitted(node, alone, tries=200) == 98


async def test_a_call_that_is_not_made_is_given_back_once(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    ticket = await node.reserve(PER_MINUTE)
    assert isinstance(ticket, QuotaReservation)
    ticket.release()
    ticket.release()

    assert await admitted(node, PER_MINUTE, tries=60) == 30


async def test_a_call_of_an_older_window_is_not_given_back_to_a_newer(
    bank: CountingBank, clock: Clock
) -> None:
    node = a_node(bank, clock)
    ticket = await node.reserve(PER_MINUTE)
    assert isinstance(ticket, QuotaReservation)
    clock.now_s = 60.0
    assert await admitted(node, PER_MINUTE, tries=1) == 1
    ticket.release()

    assert await admitted(node, PER_MINUTE, tries=60) == 29


async def test_a_grant_is_worth_nothing_after_its_window(bank: CountingBank, clock: Clock) -> None:
    """Another node may have used all of the next one up."""
    node, other = a_node(bank, clock), a_node(bank, clock)
    await node.reserve(PER_MINUTE)
    clock.now_s = 60.0
    assert await admitted(other, PER_MINUTE, tries=40) == 30

    assert await admitted(node, PER_MINUTE, tries=5) == 0


async def test_a_window_that_ends_while_it_is_asked_for_is_asked_for_again(
    bank: CountingBank, clock: Clock
) -> None:
    node = a_node(bank, clock)
    clock.now_s, bank.lag_s = 59.5, 0.7

    assert await admitted(node, PER_MINUTE, tries=1) == 1
    assert len(bank.lease_requests) == 2
    bank.lag_s = 61.0
    clock.now_s = 120.0
    with pytest.raises(ServerUnavailable):
        await node.reserve(PER_MINUTE)


async def test_without_a_source_only_granted_calls_pass(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    await node.reserve(PER_MINUTE)
    bank.is_reached = False
    assert await admitted(node, PER_MINUTE, tries=2) == 2

    bank.lease_requests.clear()
    for _ in range(5):
        with pytest.raises(ServerUnavailable):
            await node.reserve(PER_MINUTE)
    assert len(bank.lease_requests) == 1
    bank.is_reached = True
    clock.now_s += 1.0
    assert await admitted(node, PER_MINUTE, tries=1) == 1


async def test_without_a_bank_budgets_let_nothing_pass(clock: Clock) -> None:
    with pytest.raises(ServerUnavailable):
        await a_node(None, clock).reserve(PER_MINUTE)


async def test_a_call_that_is_cancelled_while_it_asks_gives_back_what_it_had(
    bank: CountingBank, clock: Clock
) -> None:
    node = a_node(bank, clock)
    both = (PER_MINUTE[0], HolderQuotas(TEAM, Quotas(calls_per_day=100)))
    await node.reserve(PER_MINUTE)
    asking = asyncio.create_task(node.reserve(both))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

    assert await admitted(node, PER_MINUTE, tries=60) == 29


async def test_tokens_are_stopped_at_everywhere_once_they_are_used_up(
    bank: CountingBank, clock: Clock
) -> None:
    node, other = a_node(bank, clock), a_node(bank, clock)
    assert await admitted(other, TOKENS, tries=3) == 3
    assert await admitted(node, TOKENS, tries=1) == 1
    node.record_tokens(TOKENS, 1_200)
    assert isinstance(await node.reserve(TOKENS), ExceededQuota)
    clock.now_s += 1.0

    refused = await other.reserve(TOKENS)
    assert isinstance(refused, ExceededQuota)
    assert refused.quota == "tokens_per_day"
    with pytest.raises(BudgetExceeded) as raised:
        await other.check_tokens(TOKENS)
    assert raised.value.retry_after_s == 86_399
    await other.check_tokens(PER_MINUTE)
    assert await bank.used() == {"key:tokens_per_day": 1_200}


async def test_tokens_are_reported_once_also_when_the_bank_was_away(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    node.record_tokens(TOKENS, 0)
    node.record_tokens(PER_MINUTE, 70)
    node.record_tokens(TOKENS, 70)
    bank.is_reached = False
    with pytest.raises(ServerUnavailable):
        await node.report()
    node.record_tokens(TOKENS, 5)
    bank.is_reached = True
    clock.now_s += 1.0
    await node.report()
    await node.report()

    assert await bank.used() == {"key:tokens_per_day": 75}


async def test_a_node_that_ends_reports_and_hands_back_what_it_has(bank: CountingBank, clock: Clock) -> None:
    node = a_node(bank, clock)
    allowances = (HolderQuotas(ADA, Quotas(100, 1_000, 500)),)
    async with node.reporting():
        assert await admitted(node, allowances, tries=4) == 4
        node.record_tokens(allowances, 9)
        assert await bank.used() == {
            "key:calls_per_day": 50,
            "key:calls_per_minute": 10,
            "key:tokens_per_day": 0,
        }

    assert await bank.used() == {
        "key:calls_per_day": 4,
        "key:calls_per_minute": 4,
        "key:tokens_per_day": 9,
    }


async def test_a_node_that_cannot_hand_anything_back_ends_all_the_same(
    bank: CountingBank, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    node = a_node(bank, clock)
    async with node.reporting():
        await node.reserve(PER_MINUTE)
        bank.is_reached = False

    assert "cannot return the unused calls" in caplog.text


async def test_tokens_are_reported_while_a_node_runs_also_after_a_failure(
    bank: CountingBank, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    node = a_node(bank, clock, report_every_s=0.0)
    bank.is_reached = False
    async with asyncio.timeout(60), node.reporting():
        node.record_tokens(TOKENS, 7)
        while not caplog.text:
            await asyncio.sleep(0)
        bank.is_reached = True
        clock.now_s += 1.0
        while not await bank.used():
            await asyncio.sleep(0)

        assert await bank.used() == {"key:tokens_per_day": 7}


async def test_holders_that_are_idle_are_forgotten_when_there_are_many(
    bank: CountingBank, clock: Clock
) -> None:
    node = a_node(bank, clock, max_accounts=3)
    for number in range(20):
        await node.reserve((HolderQuotas(QuotaHolder("key", f"k{number}"), Quotas(calls_per_minute=9)),))
        clock.now_s += 31.0

    assert len(node.accounts) <= 3
