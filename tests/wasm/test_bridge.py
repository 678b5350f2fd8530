"""Calls of a guest that have the event loop do something, and calls from there into the guest."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.wasm.wat import run_wat, spear
from toolgate.errors import PolicyDenied
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.abi import Errno, HostcallFault, HostFunction, OnThread
from toolgate.wasm.guest import Guest

pytestmark = pytest.mark.anyio

Calling = Callable[[Guest[Any], int], int]

GUEST: Final = """(module
  (import "spear" "call" (func $call (param i32) (result i32)))
  (import "spear" "exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (table {table} 10 funcref)
  (elem (i32.const 1) $sum $wrong $trap $again $leave)
  (func $sum (param i32 i32 i32 i32) (result i32)
    (i32.add (i32.add (local.get 0) (local.get 1)) (i32.add (local.get 2) (local.get 3))))
  (func $wrong (param i32) (result i32) (local.get 0))
  (func $trap (param i32 i32 i32 i32) (result i32) unreachable)
  (func $again (param i32 i32 i32 i32) (result i32) (call $call (local.get 0)))
  (func $leave (param i32 i32 i32 i32) (result i32) (call $exit (i32.const 5)) (i32.const 0))
  (func (export "_start") (call $exit (call $call (i32.const 0)))))"""
"""Its table: 1 adds, 2 has another type, 3 traps, 4 calls the host again, 5 exits."""
SUM, WRONG, TRAP, AGAIN, LEAVE = range(1, 6)
EXPORTED: Final = '(export "__indirect_function_table")'


def leave(guest: Guest[Any], code: int) -> None:
    guest.exit(code)


def is_guest(guest: Guest[Any]) -> Guest[Any]:
    """What calls are given is what they are promised: the type checker says so."""
    return guest


async def ending_of(call: Calling, tmp_path: Path, table: str = EXPORTED, **given: Any) -> InvocationResult:
    functions: list[HostFunction[Any]] = [spear("call", "i", "i", call), spear("exit", "i", "", leave)]
    async with asyncio.timeout(60):
        return await run_wat(GUEST.replace("{table}", table), tmp_path, functions=functions, **given)


async def test_a_call_waits_for_work_on_the_event_loop(tmp_path: Path) -> None:
    loop_thread = threading.current_thread()
    threads = []

    async def work() -> int:
        threads.append(threading.current_thread())
        await asyncio.sleep(0)
        return 42

    def call(guest: Guest[Any], _: int) -> int:
        threads.append(threading.current_thread())
        return guest.wait(work)

    assert (await ending_of(call, tmp_path)).exit_code == 42
    assert (threads[0].name, threads[1]) == ("guest-0", loop_thread)


async def test_what_the_work_raises_comes_out_of_the_wait(tmp_path: Path) -> None:
    async def work() -> int:
        raise PolicyDenied("no")

    def broken() -> Any:
        raise HostcallFault(Errno.ENOTSUP)

    assert (await ending_of(lambda guest, _: guest.wait(work), tmp_path)).exit_code == -13
    assert (await ending_of(lambda guest, _: guest.wait(broken), tmp_path)).exit_code == -95


async def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    def call(guest: Guest[Any], _: int) -> int:
        for seconds in (0.0, -1.0, 0.001):
            guest.sleep(seconds)
        return 1

    assert (await ending_of(call, tmp_path)).exit_code == 1


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(EXPORTED, id="by the name of compilers"),
        pytest.param('(export "table")', id="by its short name"),
        pytest.param('(export "anything")', id="the only one"),
    ],
)
async def test_functions_of_the_guests_table_can_be_called(tmp_path: Path, table: str) -> None:
    ending = await ending_of(lambda guest, _: guest.call_table(SUM, 1, 2, 3, -10), tmp_path, table)

    assert ending.exit_code == -4


@pytest.mark.parametrize(
    ("table", "index"),
    [
        pytest.param(EXPORTED, 0, id="an empty place"),
        pytest.param(EXPORTED, 10, id="past the end"),
        pytest.param(EXPORTED, -1, id="before the start"),
        pytest.param(EXPORTED, WRONG, id="of another type"),
        pytest.param("", SUM, id="no table is exported"),
    ],
)
async def test_what_is_no_such_function_is_not_called(tmp_path: Path, table: str, index: int) -> None:
    ending = await ending_of(lambda guest, _: guest.call_table(index, 1, 2, 3, 4), tmp_path, table)

    assert ending.exit_code == -Errno.EINVAL


async def test_work_on_the_event_loop_calls_back_into_the_guest_one_at_a_time(tmp_path: Path) -> None:
    def call(guest: Guest[Any], _: int) -> int:
        own, inside = threading.current_thread(), 0

        def add(value: int) -> int:
            nonlocal inside
            inside += 1
            assert (threading.current_thread(), inside) == (own, 1)
            result = guest.call_table(SUM, value, 0, 0, 0)
            inside -= 1
            return result

        async def work(on_thread: OnThread[int]) -> int:
            return sum(await asyncio.gather(*(on_thread(partial(add, value)) for value in range(10))))

        return guest.serve(work)

    assert (await ending_of(call, tmp_path)).exit_code == 45


async def test_what_a_call_on_the_thread_raises_is_the_works_to_handle(tmp_path: Path) -> None:
    def call(guest: Guest[Any], _: int) -> int:
        async def work(on_thread: OnThread[int]) -> int:
            try:
                return await on_thread(lambda: guest.call_table(WRONG, 0, 0, 0, 0))
            except HostcallFault as fault:
                return fault.errno

        return guest.serve(work)

    assert (await ending_of(call, tmp_path)).exit_code == Errno.EINVAL


async def test_a_call_that_no_one_waits_for_any_more_is_not_made(tmp_path: Path) -> None:
    made: list[int] = []

    def call(guest: Guest[Any], _: int) -> int:
        async def work(on_thread: OnThread[Any]) -> int:
            first = asyncio.ensure_future(on_thread(partial(release.wait, 60)))
            second = asyncio.ensure_future(on_thread(lambda: made.append(1)))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
            release.set()
            await first
            return 1

        release = threading.Event()
        return guest.serve(work)

    assert (await ending_of(call, tmp_path)).exit_code == 1
    assert made == []


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_trap_of_what_was_called_ends_the_run(tmp_path: Path, is_served: bool) -> None:
    went_on: list[object] = []

    def call(guest: Guest[Any], _: int) -> int:
        async def work(on_thread: OnThread[int]) -> int:
            went_on.append(await on_thread(lambda: guest.call_table(TRAP, 0, 0, 0, 0)))
            return 0

        return guest.serve(work) if is_served else guest.call_table(TRAP, 0, 0, 0, 0)

    ending = await ending_of(call, tmp_path)

    assert (ending.state, ending.ended_by, went_on) == ("failed", "trap", [])
    assert ending.message.startswith("wasm `unreachable`")


async def test_a_guest_may_exit_in_what_was_called(tmp_path: Path) -> None:
    ending = await ending_of(lambda guest, _: guest.call_table(LEAVE, 0, 0, 0, 0), tmp_path)

    assert (ending.ended_by, ending.exit_code) == ("exit", 5)


async def test_fuel_used_in_what_was_called_counts(tmp_path: Path) -> None:
    ending = await ending_of(
        lambda guest, _: max(guest.call_table(SUM, 0, 0, 0, 0) for _ in range(1_000)),
        tmp_path,
        limits=WorkloadLimits(fuel=5_000),
    )

    assert (ending.ended_by, ending.usage.fuel) == ("out_of_fuel", 5_000)


@pytest.mark.parametrize("is_served", [True, False])
async def test_was_9_calls_within_calls_go_four_deep(tmp_path: Path, is_served: bool) -> None:
    """WAS-9: each holds a stack of the host's; the guest could recurse this way too."""
    depths = []

    def call(guest: Guest[Any], depth: int) -> int:
        depths.append(depth)

        async def work(on_thread: OnThread[int]) -> int:
            return await on_thread(lambda: guest.call_table(AGAIN, depth + 1, 0, 0, 0))

        return guest.serve(work) if is_served else guest.call_table(AGAIN, depth + 1, 0, 0, 0)

    ending = await ending_of(call, tmp_path)

    assert (ending.exit_code, depths) == (-Errno.EAGAIN, [0, 1, 2, 3, 4])
