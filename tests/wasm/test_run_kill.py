"""The end of a run from outside: at its deadline, by whatever asked for it, when its node stops."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.scenarios.soak import rounds
from tests.wasm.wat import IDLE, SPIN, compiled, job, run_wat, spear
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.abi import OnThread
from toolgate.wasm.guest import Guest
from toolgate.wasm.run import GuestJob, GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

Way = Callable[[Guest[Any], int], int]

DEADLINE_MS: Final = 1_000
SLACK_MS: Final = 400
"""Of the machine that the tests run on: other tests have its two processors too, and timers wait for them."""

CALLING: Final = """(module
  (import "spear" "call" (func $call (param i32) (result i32)))
  (memory (export "memory") 1)
  (table (export "__indirect_function_table") 4 funcref)
  (elem (i32.const 1) $spin $call_again)
  (func $spin (param i32 i32 i32 i32) (result i32) (loop $again (br $again)) (i32.const 0))
  (func $call_again (param i32 i32 i32 i32) (result i32) (call $call (local.get 0)))
  (func (export "_start") (drop (call $call (i32.const 2)))))"""
"""Calls the host, which may call functions of its table: 1 spins, 2 calls the host again."""


async def never() -> int:
    await asyncio.Event().wait()
    return 0


def sleep(guest: Guest[Any], _: int) -> int:
    guest.sleep(None)
    return 0


def wait(guest: Guest[Any], _: int) -> int:
    return guest.wait(never)


def serve(guest: Guest[Any], _: int) -> int:
    async def work(on_thread: OnThread[int]) -> int:
        return await never()

    return guest.serve(work)


def spin_within(guest: Guest[Any], index: int) -> int:
    async def work(on_thread: OnThread[int]) -> int:
        return await on_thread(lambda: guest.call_table(1, 0, 0, 0, 0))

    return guest.serve(work)


def wait_within(guest: Guest[Any], left: int) -> int:
    """Three calls of the guest within calls of the guest, and then no end."""
    if left == 0:
        return guest.wait(never)

    async def work(on_thread: OnThread[int]) -> int:
        return await on_thread(lambda: guest.call_table(2, left - 1, 0, 0, 0))

    return guest.serve(work)


def call_without_end(guest: Guest[Any], _: int) -> int:
    return guest.call_table(1, 0, 0, 0, 0)


BLOCKED: Final[dict[str, Way]] = {
    "in a pause": sleep,
    "in a wait": wait,
    "while served": serve,
    "spinning while served": spin_within,
    "deep in calls": wait_within,
    "spinning within a call": call_without_end,
}


def chosen(guest: Guest[Way], value: int) -> int:
    """The call of a guest is what its run was begun with."""
    return guest.context(guest, value)


@asynccontextmanager
async def slots_of(max_guests: int) -> AsyncIterator[Slots[Any]]:
    async with Slots([spear("call", "i", "i", chosen)], max_guests=max_guests) as slots:
        yield slots
        assert slots.host_faults == 0


async def test_was_1_whatever_a_guest_is_at_it_ends_at_its_deadline(tmp_path: Path) -> None:
    """WAS-1: one that spins, and one blocked in each way there is, all at once; others go on meanwhile."""
    limits = WorkloadLimits(wall_clock_ms=DEADLINE_MS)
    spin, calling, idle = (compiled(wat, tmp_path) for wat in (SPIN, CALLING, IDLE))
    jobs: list[GuestJob[Any]] = [
        job(spin, None, limits=limits),
        *(job(calling, way, limits=limits) for way in BLOCKED.values()),
    ]
    async with slots_of(len(jobs) + 1) as slots:
        running = [asyncio.ensure_future(slots.run(GuestRun(one))) for one in jobs]
        others = [await slots.run(GuestRun(job(idle, None))) for _ in range(20)]
        still_running = [one for one in running if not one.done()]
        async with asyncio.timeout(60):
            endings: list[InvocationResult] = await asyncio.gather(*running)

    assert {one.ended_by for one in others} == {"exit"}
    assert len(still_running) == len(jobs)
    assert [(one.state, one.ended_by) for one in endings] == [("failed", "deadline")] * len(jobs)
    assert all("limits.wall_clock_ms" in one.message for one in endings)
    assert [one.usage.wall_ms for one in endings if one.usage.wall_ms > 1.1 * DEADLINE_MS + SLACK_MS] == []


@pytest.mark.parametrize("way", BLOCKED.values(), ids=BLOCKED.keys())
async def test_a_run_can_be_killed_wherever_it_is_and_its_slot_continues(tmp_path: Path, way: Way) -> None:
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def call(guest: Guest[Any], value: int) -> int:
        loop.call_soon_threadsafe(entered.set)
        return way(guest, value)

    async with slots_of(1) as slots:
        run = GuestRun(job(compiled(CALLING, tmp_path), call))
        running = asyncio.ensure_future(slots.run(run))
        async with asyncio.timeout(60):
            await entered.wait()
            run.kill("revoked", "its key is gone")
            run.kill("cancelled", "too late")
            ending = await running
            after = await slots.run(GuestRun(job(compiled(IDLE, tmp_path), None)))

    assert (ending.state, ending.ended_by, ending.message) == ("cancelled", "revoked", "its key is gone")
    assert after.ended_by == "exit"


async def test_was_1_a_run_that_waits_for_the_calls_of_others_ends_at_its_deadline(tmp_path: Path) -> None:
    is_held, is_let_go = threading.Event(), threading.Event()

    def hold(_guest: Guest[Any], _: int) -> int:
        is_held.set()
        is_let_go.wait(120)
        return 0

    module, limits = compiled(CALLING, tmp_path), WorkloadLimits(wall_clock_ms=100)
    async with Slots([spear("call", "i", "i", hold)], max_guests=2) as slots:
        holding = asyncio.ensure_future(slots.run(GuestRun(job(module, None))))
        await asyncio.to_thread(is_held.wait, 60)
        waiting = asyncio.ensure_future(slots.run(GuestRun(job(module, None, limits=limits))))
        ended, _ = await asyncio.wait({waiting}, timeout=60)
        is_let_go.set()

        assert ended == {waiting}
        assert ((await waiting).ended_by, (await holding).ended_by) == ("deadline", "exit")
        assert slots.host_faults == 0


async def test_a_run_that_was_killed_before_does_nothing(tmp_path: Path) -> None:
    called: list[object] = []

    def call(guest: Guest[Any], _: int) -> int:
        called.append(guest)
        return 0

    async with slots_of(1) as slots:
        run = GuestRun(job(compiled(CALLING, tmp_path), call))
        run.kill("cancelled", "never mind")
        ending = await slots.run(run)

    assert (ending.ended_by, ending.usage.hostcalls, called) == ("cancelled", 0, [])


async def test_a_run_that_has_ended_cannot_be_killed(tmp_path: Path) -> None:
    async with slots_of(1) as slots:
        run = GuestRun(job(compiled(IDLE, tmp_path), None))
        ending = await slots.run(run)
        run.kill("cancelled", "too late")
        # Would it reach the slot, the next would end by it.
        spinning = GuestRun(job(compiled(SPIN, tmp_path), None, limits=WorkloadLimits(fuel=1_000_000)))
        after = asyncio.ensure_future(slots.run(spinning))
        for _ in range(100):
            run.kill("cancelled", "too late")
            await asyncio.sleep(0)

        assert (run.ending, ending.ended_by) == (ending, "exit")
        assert (await after).ended_by == "out_of_fuel"


@pytest.mark.soak
async def test_kills_that_race_with_the_end_hit_their_run_or_nothing(tmp_path: Path) -> None:
    """Killed from another thread at the moment it may be at its start, its end, or past it."""
    idle = compiled(IDLE, tmp_path)
    count = rounds(suite=300, soak=20_000)
    async with slots_of(1) as slots:
        endings = []
        for _ in range(count):
            run = GuestRun(job(idle, None))
            killer = threading.Thread(target=run.kill, args=("cancelled", "raced"))
            running = asyncio.ensure_future(slots.run(run))
            await asyncio.sleep(0)
            killer.start()
            endings.append((await running).ended_by)
            endings.append((await slots.run(GuestRun(job(idle, None)))).ended_by)
            killer.join()

    assert set(endings[0::2]) <= {"cancelled", "exit"}
    assert set(endings[1::2]) == {"exit"}


async def test_who_cancels_the_wait_kills_the_run_and_comes_back_when_its_work_is_over(
    tmp_path: Path,
) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        entered.set()
        try:
            return await never()
        finally:
            await may_end.wait()

    async with slots_of(1) as slots:
        run = GuestRun(job(compiled(CALLING, tmp_path), lambda guest, _: guest.wait(work)))
        running = asyncio.ensure_future(slots.run(run))
        async with asyncio.timeout(60):
            await entered.wait()
            running.cancel()
            while run.ending is None:
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert (slots.free, running.done()) == (0, False)
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await running

        assert slots.free == 1
    assert (run.ending.state, run.ending.ended_by) == ("cancelled", "cancelled")


async def test_one_that_waits_for_a_slot_can_be_killed_and_cancelled(tmp_path: Path) -> None:
    idle = compiled(IDLE, tmp_path)
    async with slots_of(1) as slots:
        first = GuestRun(job(compiled(SPIN, tmp_path), None))
        running = asyncio.ensure_future(slots.run(first))
        await asyncio.sleep(0)
        runs = [GuestRun(job(idle, None)) for _ in range(3)]
        waiting = [asyncio.ensure_future(slots.run(one)) for one in runs]
        await asyncio.sleep(0)
        runs[0].kill("cancelled", "never mind")
        waiting[1].cancel()
        async with asyncio.timeout(60):
            killed = await waiting[0]
            with pytest.raises(asyncio.CancelledError):
                await waiting[1]
            first.kill("cancelled", "enough")

            assert [killed.ended_by, (await waiting[2]).ended_by] == ["cancelled", "exit"]
            assert (await running).ended_by == "cancelled"
        assert slots.free == 1


async def test_a_slot_that_was_promised_to_one_that_left_goes_to_the_next(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    idle = compiled(IDLE, tmp_path)
    async with slots_of(1) as slots:
        first = asyncio.ensure_future(slots.run(GuestRun(job(idle, None))))
        await asyncio.sleep(0)
        leaving = asyncio.ensure_future(slots.run(GuestRun(job(idle, None))))
        last = asyncio.ensure_future(slots.run(GuestRun(job(idle, None))))

        def leave_as_the_slot_is_given() -> None:
            if first.done():
                leaving.cancel()
            else:
                loop.call_soon(leave_as_the_slot_is_given)

        leave_as_the_slot_is_given()
        async with asyncio.timeout(60):
            await asyncio.wait([leaving])

            assert leaving.cancelled()
            assert (await last).ended_by == "exit"
        assert slots.free == 1


async def test_leaving_the_slots_ends_what_runs_and_every_thread(tmp_path: Path) -> None:
    """More than there is room for: some have not begun."""
    before = {thread for thread in threading.enumerate() if thread.name.startswith("guest-")}
    entered = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def entering(way: Way) -> Way:
        def call(guest: Guest[Any], value: int) -> int:
            loop.call_soon_threadsafe(entered.release)
            return way(guest, value)

        return call

    async with asyncio.timeout(60):
        async with slots_of(4) as slots:
            calling = compiled(CALLING, tmp_path)
            jobs = [job(calling, entering(way)) for way in BLOCKED.values()]
            running = [asyncio.ensure_future(slots.run(GuestRun(one))) for one in jobs]
            for _ in range(4):
                await entered.acquire()
        late = await slots.run(GuestRun(job(compiled(IDLE, tmp_path), None)))
        endings = await asyncio.gather(*running)

    assert {(one.state, one.ended_by) for one in (*endings, late)} == {("crashed", "node_stopped")}
    assert {thread for thread in threading.enumerate() if thread.name.startswith("guest-")} == before


async def test_work_that_fails_while_it_is_cancelled_is_nobodys_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entered = asyncio.Event()

    async def work() -> int:
        entered.set()
        try:
            return await never()
        finally:
            raise RuntimeError("on its way out")

    async with slots_of(1) as slots:
        run = GuestRun(job(compiled(CALLING, tmp_path), lambda guest, _: guest.wait(work)))
        running = asyncio.ensure_future(slots.run(run))
        async with asyncio.timeout(60):
            await entered.wait()
            run.kill("cancelled", "enough")

            assert (await running).ended_by == "cancelled"
    gc.collect()

    assert caplog.records == []


async def test_work_that_is_cancelled_by_others_ends_the_run(tmp_path: Path) -> None:
    """As when the event loop is torn down."""

    async def work() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await never()

    ending = await run_wat(
        CALLING, tmp_path, functions=[spear("call", "i", "i", lambda guest, _: guest.wait(work))]
    )

    assert ending.ended_by == "node_stopped"
