"""Admission: room, queue, order, deadlines, and places that never get lost."""

import asyncio

import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import CallTimedOut, ServerBusy
from toolgate.upstream.pool.admission import ServerGate

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def full_gate(*, limit: int = 1, queue: int = 64) -> ServerGate:
    gate = ServerGate("one", limit=limit, queue=queue)
    for _ in range(limit):
        assert gate.try_enter()
    return gate


async def in_line(gate: ServerGate, *, until_s: float = 100.0) -> asyncio.Task[None]:
    """Someone who has begun to wait."""
    waiting = asyncio.create_task(gate.enter(until_s))
    await pass_time(0)
    return waiting


async def test_there_is_room_for_as_many_as_the_limit_says() -> None:
    gate = ServerGate("one", limit=2, queue=64)

    assert [gate.try_enter() for _ in range(3)] == [True, True, False]
    assert gate.in_flight == 2


async def test_a_caller_that_finds_room_does_not_wait() -> None:
    gate = ServerGate("one", limit=1, queue=0)

    await gate.enter(until_s=0.0)

    assert gate.in_flight == 1


async def test_a_caller_that_waits_longest_comes_in_first_and_no_one_overtakes() -> None:
    gate = full_gate()
    first, second = await in_line(gate), await in_line(gate)

    gate.leave()
    overtook = gate.try_enter()
    await first

    assert (overtook, second.done(), gate.in_flight, gate.queued) == (False, False, 1, 1)
    gate.leave()
    await second


async def test_a_full_queue_refuses_at_once() -> None:
    gate = full_gate(queue=1)
    waiting = await in_line(gate)

    with pytest.raises(ServerBusy, match="`one` has 1 calls in flight and 1 waiting"):
        await gate.enter(100.0)

    gate.leave()
    await waiting


async def test_a_caller_that_waits_too_long_leaves_the_queue() -> None:
    gate = full_gate()

    with pytest.raises(CallTimedOut, match="nothing was sent"):
        await gate.enter(2.0)

    assert (asyncio.get_running_loop().time(), gate.in_flight, gate.queued) == (2.0, 1, 0)


async def test_a_caller_that_goes_away_while_waiting_leaves_the_queue() -> None:
    gate = full_gate()
    waiting = await in_line(gate)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert (gate.in_flight, gate.queued) == (1, 0)


async def test_a_place_given_in_the_moment_its_taker_goes_away_reaches_the_next() -> None:
    gate = full_gate()
    leaver, stayer = await in_line(gate), await in_line(gate)

    gate.leave()
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    await stayer

    assert (gate.in_flight, gate.queued) == (1, 0)


async def test_bud_8_a_place_given_back_while_those_in_line_go_away_is_not_lost() -> None:
    gate = full_gate()
    leavers = [await in_line(gate) for _ in range(3)]
    stayer = await in_line(gate)

    for leaver in leavers:
        leaver.cancel()
    gate.leave()
    await asyncio.gather(*leavers, return_exceptions=True)
    await stayer
    gate.leave()

    assert (gate.in_flight, gate.queued) == (0, 0)


async def test_bud_8_a_place_given_back_while_all_in_line_go_away_is_free() -> None:
    gate = full_gate()
    leavers = [await in_line(gate) for _ in range(3)]

    for leaver in leavers:
        leaver.cancel()
    gate.resize(2)
    gate.leave()
    await asyncio.gather(*leavers, return_exceptions=True)

    assert (gate.in_flight, gate.queued) == (0, 0)


async def test_a_place_with_its_taker_timed_out_and_went_away_at_once_is_not_counted_twice() -> None:
    gate = full_gate()
    waiting = await in_line(gate, until_s=1.0)
    asyncio.get_running_loop().call_at(1.0, waiting.cancel)

    await asyncio.gather(waiting, return_exceptions=True)

    assert (gate.in_flight, gate.queued) == (1, 0)


async def test_more_room_lets_those_in_who_wait() -> None:
    gate = full_gate()
    waiting = [await in_line(gate) for _ in range(3)]

    gate.resize(3)
    await asyncio.gather(*waiting[:2])

    assert (gate.in_flight, gate.queued) == (3, 1)
    gate.leave()
    await waiting[2]


async def test_less_room_is_reached_as_calls_end() -> None:
    gate = full_gate(limit=3)
    waiting = await in_line(gate)

    gate.resize(1)
    gate.leave()
    gate.leave()

    assert (gate.in_flight, gate.queued) == (1, 1)
    gate.leave()
    await waiting
    assert gate.in_flight == 1


async def test_emptied_returns_when_the_last_has_left() -> None:
    gate = full_gate(limit=2)
    emptied = asyncio.create_task(gate.wait_empty())
    await pass_time(0)

    gate.leave()
    await pass_time(0)
    was_early = emptied.done()
    gate.leave()
    await emptied

    assert not was_early
    await gate.wait_empty()


async def test_a_caller_that_steps_out_lets_the_next_in_and_comes_back_without_waiting() -> None:
    gate = full_gate()
    waiting = await in_line(gate)

    gate.release_for_client()
    await waiting
    while_outside = (gate.in_flight, gate.outside)
    gate.retake_after_client()

    assert while_outside == (1, 1)
    assert (gate.in_flight, gate.outside, gate.try_enter()) == (2, 0, False)


async def test_a_place_left_by_one_too_many_goes_to_no_one() -> None:
    gate = full_gate()
    gate.release_for_client()
    assert gate.try_enter()
    gate.retake_after_client()
    waiting = await in_line(gate)

    gate.leave()
    still_waits = not waiting.done()
    gate.leave()
    await waiting

    assert (still_waits, gate.in_flight) == (True, 1)


async def test_one_who_stepped_out_is_waited_for() -> None:
    gate = full_gate()
    gate.release_for_client()
    emptied = asyncio.create_task(gate.wait_empty())
    await pass_time(1)
    waits = not emptied.done()

    gate.retake_after_client()
    gate.leave()
    await emptied

    assert (waits, gate.is_empty) == (True, True)
