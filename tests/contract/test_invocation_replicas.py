"""One queue for several replicas of control on one database: each invocation is with one node at a time."""

import asyncio
from collections import Counter

import pytest

from tests.contract.invocation_samples import SUCCESS, begin, claim_ids, found, invocation, line, make
from tests.contract.stores import DEADLINE_S, Clock
from tests.scenarios.soak import rounds
from toolgate.errors import Conflict
from toolgate.registry.invocations import LEASE_MS
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

ROWS = rounds(suite=200, soak=1_000)


async def test_ten_claimers_at_two_replicas_take_each_invocation_exactly_once(
    replicas: tuple[Store, Store],
) -> None:
    for n in range(ROWS):
        await make(replicas[n % 2].invocations, f"i{n}", task_id=f"t{n % 7}")

    async def take(number: int) -> list[str]:
        taken: list[str] = []
        while batch := await claim_ids(replicas[number % 2].invocations, 3, f"n{number}"):
            taken += batch
        return taken

    async with asyncio.timeout(DEADLINE_S * rounds(suite=1, soak=10)):
        taken = await asyncio.gather(*(take(n) for n in range(10)))

    assert Counter(one for part in taken for one in part) == Counter(f"i{n}" for n in range(ROWS))
    assert [(await found(replicas[0].invocations, one)).node_id for one in taken[3][:5]] == ["n3"] * len(
        taken[3][:5]
    )


async def test_what_another_claimer_is_taking_is_passed_over_and_not_waited_for(
    replicas: tuple[Store, Store],
) -> None:
    one, other = replicas
    await make(one.invocations, "a", "b", "c")
    async with asyncio.timeout(DEADLINE_S):
        both = await asyncio.gather(claim_ids(one.invocations, 2), claim_ids(other.invocations, 1))

    assert sorted(both[0] + both[1]) == ["a", "b", "c"]


async def test_a_claimer_is_woken_by_what_another_replica_takes_in(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    async with asyncio.timeout(DEADLINE_S):
        # Past what it heard when it began to listen:
        await other.invocations.changed(0)
        waiting = asyncio.ensure_future(other.invocations.claim("n1", limit=1, wait_s=3_600))
        await asyncio.sleep(0.05)
        await make(one.invocations, "a")

        assert [taken.invocation_id for taken in await waiting] == ["a"]


async def test_every_replica_hears_of_what_is_reported_to_another(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    await begin(one.invocations, "a")
    async with asyncio.timeout(DEADLINE_S):
        while not await other.invocations.lines("a"):
            seen = await other.invocations.changed(-1)
            waiting = asyncio.ensure_future(other.invocations.changed(seen))
            await one.invocations.report("a", 1, lines=[line(1)])
            await waiting
        await other.invocations.cancel("a")

    assert await one.invocations.report("a", 1) == "cancel"
    assert await other.invocations.report("a", 1, ending=SUCCESS) == "go_on"
    assert (await found(one.invocations, "a")).state == "succeeded"


async def test_wat_11_a_replica_whose_clock_is_ahead_takes_no_lease_for_over(
    replicas: tuple[Store, Store], clocks: tuple[Clock, Clock]
) -> None:
    ahead, behind = replicas
    await claim_ids(ahead.invocations)
    await begin(behind.invocations, "a")
    clocks[0].now_ms += LEASE_MS + 1
    await claim_ids(ahead.invocations)
    running = await found(ahead.invocations, "a")

    assert running.state == "running"
    assert running.started_ms is not None
    assert running.lease_until_ms is not None
    assert running.lease_until_ms - running.started_ms == LEASE_MS


async def test_one_key_given_to_two_replicas_at_once_is_one_invocation(
    replicas: tuple[Store, Store],
) -> None:
    for n in range(10):
        made = await asyncio.gather(
            *(
                store.invocations.create(invocation(f"{n}-{at}", idempotency_key=f"k{n}"))
                for at, store in enumerate(replicas)
            )
        )
        assert sorted(one.is_new for one in made) == [False, True]
        assert len({one.invocation.invocation_id for one in made}) == 1
    other = invocation("x", idempotency_key="k0", input=b"other")

    with pytest.raises(Conflict):
        await replicas[0].invocations.create(other)
