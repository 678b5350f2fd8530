"""The node's cap on calls in flight: who gets a slot, who waits, who is refused."""

import asyncio
from collections import Counter

import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import CallTimedOut, NodeBusy
from toolgate.upstream.pool.admission import NodeSlots

pytestmark = pytest.mark.anyio

LATER_S = 100.0


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


async def waiting_call(slots: NodeSlots, principal: str, *, until_s: float = LATER_S) -> asyncio.Task[None]:
    """A call that has begun to wait."""
    waiting = asyncio.create_task(slots.take(principal, until_s))
    await pass_time(0)
    return waiting


def take_all(slots: NodeSlots, principal: str) -> int:
    """How many slots one principal gets."""
    taken = 0
    while slots.try_take(principal):
        taken += 1
    return taken


def fill(slots: NodeSlots) -> None:
    """Have every slot taken, each by another principal."""
    assert all(slots.try_take(f"holder-{number}") for number in range(slots.limit))


@pytest.mark.parametrize(("limit", "alone"), [(1, 1), (4, 4), (10, 8), (512, 410)])
async def test_one_principal_gets_four_fifths_and_the_rest_is_for_others(limit: int, alone: int) -> None:
    slots = NodeSlots(limit)

    assert take_all(slots, "flood") == alone
    assert [slots.try_take("other") for _ in range(limit - alone)][:1] == [True] * (limit > alone)


async def test_the_reserve_goes_to_principals_that_hold_less_than_a_tenth() -> None:
    slots = NodeSlots(100)
    take_all(slots, "flood")

    assert [take_all(slots, name) for name in ("a", "b", "c")] == [10, 10, 0]


async def test_a_slot_given_back_goes_to_the_principal_that_holds_the_fewest() -> None:
    slots = NodeSlots(4)
    for principal in ("many", "many", "many", "one"):
        assert slots.try_take(principal)
    calls = [await waiting_call(slots, name) for name in ("many", "one", "none")]

    served = []
    for principal in ("many", "none", "many"):
        slots.release(principal)
        await pass_time(0)
        served.append([call.done() for call in calls])

    assert served == [[False, False, True], [False, True, True], [True, True, True]]


async def test_principals_that_hold_as_many_take_turns_whatever_each_has_waiting() -> None:
    slots = NodeSlots(6)
    fill(slots)
    order: list[str] = []

    async def call(principal: str) -> None:
        await slots.take(principal, LATER_S)
        order.append(principal)
        slots.release(principal)

    calls = [asyncio.create_task(call(name)) for name in ("a", "a", "a", "b", "c", "b")]
    await pass_time(0)
    slots.release("holder-0")
    await asyncio.gather(*calls)

    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_more_than_one_may_wait_for_each_slot_and_the_next_is_refused_at_once() -> None:
    slots = NodeSlots(2)
    fill(slots)
    calls = [await waiting_call(slots, "a") for _ in range(2)]

    with pytest.raises(NodeBusy, match="this node has 2 calls in flight and 2 waiting") as refused:
        await slots.take("a", LATER_S)

    assert (refused.value.retryable, slots.refused, slots.queued) == (True, 1, 2)
    assert "`max_calls`" in refused.value.hint
    for call in calls:
        call.cancel()


async def test_a_full_queue_refuses_the_newest_call_of_the_principal_with_the_most() -> None:
    slots = NodeSlots(4)
    fill(slots)
    flood = [await waiting_call(slots, "flood") for _ in range(4)]

    others = [await waiting_call(slots, "other") for _ in range(2)]
    with pytest.raises(NodeBusy):
        await slots.take("other", LATER_S)
    await pass_time(0)

    assert [call.done() for call in (*flood, *others)] == [False, False, True, True, False, False]
    assert [type(call.exception()) for call in flood[2:]] == [NodeBusy, NodeBusy]
    assert (slots.queued, slots.refused) == (4, 3)
    for call in (*flood[:2], *others):
        call.cancel()


async def test_a_call_waits_no_longer_than_its_own_time() -> None:
    slots = NodeSlots(1)
    fill(slots)

    with pytest.raises(CallTimedOut, match="nothing was sent"):
        await slots.take("a", 2.0)

    assert (asyncio.get_running_loop().time(), slots.in_flight, slots.queued) == (2.0, 1, 0)


async def test_no_slot_is_lost_when_callers_go_away() -> None:
    slots = NodeSlots(3)
    fill(slots)
    leavers = [await waiting_call(slots, name) for name in ("a", "a", "b")]

    leavers[0].cancel()  # before the slot is given
    slots.release("holder-0")
    leavers[1].cancel()  # in the very moment
    await asyncio.gather(*leavers[:2], return_exceptions=True)
    await leavers[2]
    for principal in ("b", "holder-1", "holder-2"):
        slots.release(principal)

    assert (slots.in_flight, slots.queued, take_all(NodeSlots(3), "a")) == (0, 0, take_all(slots, "a"))


async def test_a_call_that_takes_its_slot_back_never_waits_and_the_next_waits_for_it() -> None:
    slots = NodeSlots(1)
    assert slots.try_take("asked")
    slots.release("asked")
    assert slots.try_take("b")

    slots.retake("asked")
    call = await waiting_call(slots, "c")
    slots.release("b")
    still_waits = not call.done()
    slots.release("asked")
    await call

    assert (still_waits, slots.in_flight) == (True, 1)


async def serve(
    slots: NodeSlots, served: Counter[str], principal: str, *, takes_s: float, until_s: float
) -> None:
    """A client that calls again and again."""
    now = asyncio.get_running_loop().time
    while now() < until_s:
        try:
            await slots.take(principal, until_s)
        except NodeBusy:
            await pass_time(takes_s)
            continue
        except CallTimedOut:
            return
        try:
            await pass_time(takes_s)
        finally:
            slots.release(principal)
        served[principal] += 1


@pytest.mark.requirement("002-102")
async def test_none_of_64_principals_starves() -> None:
    """One of them has ten times as many clients, and all together want far more than there is."""
    slots, served = NodeSlots(64), Counter[str]()
    crowd = [f"p{number}" for number in range(64) for _ in range(4)] + ["p0"] * 36

    await asyncio.gather(*(serve(slots, served, name, takes_s=0.1, until_s=5.0) for name in crowd))

    assert len(served) == 64
    assert max(served.values()) / min(served.values()) <= 1.5
    assert slots.in_flight == slots.queued == 0


@pytest.mark.requirement("002-102")
async def test_the_others_never_wait_while_one_floods_the_node_with_slow_calls() -> None:
    slots, served = NodeSlots(100), Counter[str]()
    waited = 0

    async def quick(principal: str) -> None:
        nonlocal waited
        for _ in range(100):
            if not slots.try_take(principal):
                waited += 1
                await slots.take(principal, LATER_S)
            await pass_time(0.01)
            slots.release(principal)

    flood = [
        asyncio.create_task(serve(slots, served, "flood", takes_s=5.0, until_s=50.0)) for _ in range(1_000)
    ]
    await pass_time(1)
    flooded = (slots.in_flight, slots.queued)
    await asyncio.gather(*(quick(f"p{number % 15}") for number in range(20)))

    assert flooded == (80, 100)
    assert waited == 0
    await asyncio.gather(*flood)
