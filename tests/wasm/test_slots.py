"""Guests in their slots: how they begin, what they are given, how they end."""

import asyncio
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.soak import rounds
from tests.wasm.wat import IDLE, LIMITS, TRAP, compiled, job, run_wat, spear
from toolgate.errors import CallTimedOut, PolicyDenied
from toolgate.model.invocations import InvocationResult
from toolgate.wasm.abi import SPEAR, Errno, FdEntry, HostcallFault, HostFunction, RunStopped
from toolgate.wasm.guest import Guest
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import NICENESS, Slots

pytestmark = pytest.mark.anyio

CALL = """(module
  (import "spear" "call" (func $call (result i32)))
  (import "spear" "exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $exit (call $call)) (loop $again (br $again))))"""
"""Ends with what its one call gave it."""


def leave(guest: Guest[Any], code: int) -> None:
    guest.exit(code)


EXIT = spear("exit", "i", "", leave)


async def given(call: Any, tmp_path: Path) -> int | None:
    """What a guest sees of a call."""
    ending = await run_wat(CALL, tmp_path, functions=[spear("call", "", "i", call), EXIT])
    assert ending.ended_by == "exit"
    return ending.exit_code


async def test_a_guest_that_returns_has_succeeded(tmp_path: Path) -> None:
    ending = await run_wat(IDLE, tmp_path)

    assert (ending.state, ending.ended_by, ending.exit_code, ending.message) == ("succeeded", "exit", 0, "")
    assert (ending.usage.memory_bytes, ending.usage.hostcalls, ending.usage.fuel) == (65_536, 0, 1)


async def test_a_guest_that_exits_runs_no_further_and_its_code_counts(tmp_path: Path) -> None:
    ending = await run_wat(CALL, tmp_path, functions=[spear("call", "", "i", lambda _: 3), EXIT])

    assert (ending.state, ending.ended_by, ending.exit_code) == ("failed", "exit", 3)
    assert ending.usage.hostcalls == 2
    assert 0 < ending.usage.fuel < 100


async def test_a_call_after_the_end_has_no_effect(tmp_path: Path) -> None:
    """A guest that was starved may come to one more call before it notices."""
    called: list[object] = []
    wat = """(module (import "spear" "exit" (func $exit (param i32))) (import "spear" "touch" (func $touch))
      (func (export "_start") (call $exit (i32.const 7)) (call $touch) (call $exit (i32.const 8))))"""

    ending = await run_wat(wat, tmp_path, functions=[EXIT, spear("touch", "", "", called.append)])

    assert (ending.exit_code, called) == (7, [])


@pytest.mark.parametrize(
    ("wat", "message"),
    [
        pytest.param(
            '(module (import "env" "a" (func)) (func (export "_start")))',
            "unknown import: `env::a`",
            id="an unknown import",
        ),
        pytest.param(
            '(module (import "spear" "exit" (func)) (func (export "_start")))',
            "incompatible import type for `spear::exit`",
            id="an import of another type",
        ),
    ],
)
async def test_a_module_that_cannot_be_begun_says_why(tmp_path: Path, wat: str, message: str) -> None:
    ending = await run_wat(wat, tmp_path, functions=[EXIT])

    assert (ending.state, ending.ended_by, ending.exit_code) == ("failed", "module", None)
    assert message in ending.message


async def test_compiled_code_of_another_kind_is_not_loaded(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cwasm"
    wrong.write_bytes(b"\x7fELF and no more")
    async with Slots[None]([], max_guests=1) as slots:
        refused = await slots.run(GuestRun(job(wrong, None)))
        missing = await slots.run(GuestRun(job(tmp_path / "missing.cwasm", None)))
        after = await slots.run(GuestRun(job(compiled(IDLE, tmp_path), None)))

        assert slots.host_faults == 0
    assert [one.ended_by for one in (refused, missing, after)] == ["module", "module", "exit"]


@pytest.mark.parametrize(
    ("wat", "message"),
    [
        pytest.param(TRAP, "wasm `unreachable` instruction executed", id="unreachable"),
        pytest.param(
            '(module (func $s unreachable) (start $s) (func (export "_start")))',
            "wasm `unreachable` instruction executed",
            id="in the start function",
        ),
        pytest.param(
            '(module (memory 1) (data (i32.const 65536) "x") (func (export "_start")))',
            "out of bounds memory access",
            id="data outside the memory",
        ),
        pytest.param(
            '(module (func (export "_start") (drop (i32.div_u (i32.const 1) (i32.const 0)))))',
            "integer divide by zero",
            id="division",
        ),
    ],
)
async def test_a_trap_says_its_cause_first(tmp_path: Path, wat: str, message: str) -> None:
    ending = await run_wat(wat, tmp_path)

    assert (ending.state, ending.ended_by, ending.exit_code) == ("failed", "trap", None)
    assert ending.message.startswith(message)


async def test_the_names_in_a_module_cannot_fill_the_message(tmp_path: Path) -> None:
    wat = f'(module (func ${"x" * 50_000} unreachable) (func (export "_start") (call 0)))'

    assert len((await run_wat(wat, tmp_path)).message) <= 2_000


def raising(exc: BaseException) -> Any:
    def call(_: Guest[Any]) -> int:
        raise exc

    return call


@pytest.mark.parametrize(
    ("exc", "errno"),
    [
        pytest.param(HostcallFault(Errno.EBADF), -9, id="a fault"),
        pytest.param(PolicyDenied("no"), -13, id="an error of the gateway"),
        pytest.param(CallTimedOut("late"), -110, id="another"),
    ],
)
async def test_what_a_call_raises_is_a_number_to_the_guest(
    tmp_path: Path, exc: Exception, errno: int
) -> None:
    assert await given(raising(exc), tmp_path) == errno


async def test_functions_of_wasi_have_numbers_of_their_own(tmp_path: Path) -> None:
    call: HostFunction[Any] = HostFunction(
        SPEAR, "call", "", "i", raising(HostcallFault(Errno.EFAULT)), failure=lambda _: 21
    )

    assert (await run_wat(CALL, tmp_path, functions=[call, EXIT])).exit_code == 21


async def test_a_failure_of_64_bits_is_negative_too(tmp_path: Path) -> None:
    wat = """(module
      (import "spear" "long" (func $long (result i64)))
      (import "spear" "exit" (func $exit (param i32)))
      (func (export "_start") (call $exit (i64.eq (call $long) (i64.const -22)))))"""
    long = spear("long", "", "I", raising(HostcallFault(Errno.EINVAL)))

    assert (await run_wat(wat, tmp_path, functions=[long, EXIT])).exit_code == 1


@pytest.mark.parametrize("exc", [RuntimeError("inner words"), KeyboardInterrupt(), SystemExit(1)])
async def test_a_call_that_breaks_ends_its_run_and_nothing_else(
    tmp_path: Path, exc: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    broken = compiled(CALL, tmp_path)
    async with Slots([spear("call", "", "i", raising(exc)), EXIT], max_guests=1) as slots:
        ending = await slots.run(GuestRun(job(broken, None)))
        after = await slots.run(GuestRun(job(compiled(IDLE, tmp_path), None)))

        assert slots.host_faults == 1
    assert (ending.state, ending.ended_by, ending.exit_code) == ("failed", "internal", None)
    assert "inner words" not in ending.message
    assert after.ended_by == "exit"
    assert [one.getMessage() for one in caplog.records] == ["the hostcall `spear.call` of a guest failed"]
    assert caplog.records[0].exc_info is not None


async def test_a_function_that_gives_no_number_is_at_fault(tmp_path: Path) -> None:
    async with Slots([spear("call", "", "i", lambda _: None), EXIT], max_guests=1) as slots:
        ending = await slots.run(GuestRun(job(compiled(CALL, tmp_path), None)))

        assert (ending.ended_by, slots.host_faults) == ("internal", 1)


async def test_a_guest_has_its_arguments_environment_input_and_context(tmp_path: Path) -> None:
    seen: list[Any] = []

    def call(guest: Guest[str]) -> int:
        reads = [guest.read_input(3), guest.read_input(-1), guest.read_input(100), guest.read_input(1)]
        seen.extend([guest.context, guest.args, guest.env, guest.limits, reads])
        return 0

    functions = [spear("call", "", "i", call), EXIT]
    await run_wat(
        CALL, tmp_path, functions=functions, context="c", args=("t", "ä"), env={"A": "1"}, input_=b"abcdef"
    )

    assert seen == ["c", (b"t", "ä".encode()), (b"A=1",), LIMITS, [b"abc", b"", b"def", b""]]


async def test_what_a_guest_leaves_open_is_closed_when_it_ends(tmp_path: Path) -> None:
    """WAS-5"""
    tables = []

    def call(guest: Guest[Any]) -> int:
        tables.append(guest.fds)
        return guest.fds.open(Leftover())

    closed: list[str] = []

    class Leftover(FdEntry):
        kind = "Leftover"

        def close(self) -> None:
            closed.append(self.kind)

    await given(call, tmp_path)

    assert (len(tables[0]), closed) == (0, ["Leftover"])


async def test_was_11_after_a_trap_the_slot_runs_the_next_as_ever(tmp_path: Path) -> None:
    """WAS-11"""
    trap, idle = compiled(TRAP, tmp_path), compiled(IDLE, tmp_path)
    async with Slots[None]([], max_guests=1) as slots:
        endings = [await slots.run(GuestRun(job(one, None))) for _ in range(200) for one in (trap, idle)]

        assert slots.host_faults == 0
    assert [one.ended_by for one in endings] == ["trap", "exit"] * 200


async def test_was_11_a_guest_never_ends_by_what_ended_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """WAS-11: bindings hand an exception of one thread to another. Calls that break make the worst of it."""
    caplog.set_level(logging.CRITICAL)
    modules = [compiled(TRAP, tmp_path), compiled(CALL, tmp_path)] * 4
    functions = [spear("call", "", "i", raising(RuntimeError("inner words"))), EXIT]
    count = rounds(suite=100, soak=5_000)

    async def repeated(module: Path) -> set[str]:
        return {(await slots.run(GuestRun(job(module, None)))).ended_by for _ in range(count)}

    async with Slots(functions, max_guests=len(modules)) as slots:
        ended_by = await asyncio.gather(*map(repeated, modules))

        assert slots.host_faults == 4 * count
    assert ended_by == [{"trap"}, {"internal"}] * 4


async def test_a_hundred_guests_run_at_once(tmp_path: Path) -> None:
    """Each waits until all are there."""
    everyone = asyncio.Barrier(100)

    async def meet() -> int:
        return await everyone.wait()

    module = compiled(CALL, tmp_path)
    async with Slots([spear("call", "", "i", lambda guest: guest.wait(meet)), EXIT], max_guests=100) as slots:
        running = [asyncio.ensure_future(slots.run(GuestRun(job(module, None)))) for _ in range(100)]
        async with asyncio.timeout(60):
            endings: list[InvocationResult] = await asyncio.gather(*running)

        assert (slots.free, slots.host_faults) == (100, 0)
    assert sorted(one.exit_code or 0 for one in endings) == list(range(100))


async def test_more_than_may_run_at_once_wait_their_turn(tmp_path: Path) -> None:
    at_once: list[int] = []
    running = 0

    async def work() -> int:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0)
        running -= 1
        return 0

    module = compiled(CALL, tmp_path)
    async with Slots([spear("call", "", "i", lambda guest: guest.wait(work)), EXIT], max_guests=2) as slots:
        assert slots.free == 2
        waiting = [asyncio.ensure_future(slots.run(GuestRun(job(module, None)))) for _ in range(12)]
        await asyncio.sleep(0)
        assert slots.free == 0
        endings = await asyncio.gather(*waiting)

        assert slots.free == 2
    assert [one.exit_code for one in endings] == [0] * 12
    assert max(at_once) <= 2


async def test_a_node_without_slots_runs_nothing(tmp_path: Path) -> None:
    async with Slots[None]([], max_guests=0) as slots:
        run = GuestRun(job(compiled(IDLE, tmp_path), None))
        waiting = asyncio.ensure_future(slots.run(run))
        await asyncio.sleep(0)
        run.kill("cancelled", "enough")

        assert (slots.free, (await waiting).ended_by) == (0, "cancelled")


async def test_a_slot_keeps_few_modules_and_loads_again_what_it_dropped(tmp_path: Path) -> None:
    texts = [f'(module (memory (export "memory") {pages}) (func (export "_start")))' for pages in range(1, 8)]
    modules = [compiled(text, tmp_path) for text in texts]
    async with Slots[None]([], max_guests=1) as slots:
        endings = [await slots.run(GuestRun(job(one, None))) for _ in range(2) for one in modules]

    assert [one.usage.memory_bytes >> 16 for one in endings] == [*range(1, 8)] * 2


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text("utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


async def test_runs_leave_no_memory_behind(tmp_path: Path) -> None:
    """Each has a megabyte that it has written to."""
    module = compiled(
        """(module (memory (export "memory") 16)
          (func (export "_start") (memory.fill (i32.const 0) (i32.const 1) (i32.const 1048576))))""",
        tmp_path,
    )
    async with Slots[None]([], max_guests=4) as slots:

        async def some(count: int) -> None:
            for _ in range(count // 4):
                await asyncio.gather(*(slots.run(GuestRun(job(module, None))) for _ in range(4)))

        await some(40)
        before = resident_kib()
        await some(500)
        grown = resident_kib() - before

    assert grown < 8 * 1024


async def test_a_stop_without_a_reason_is_a_fault_too(tmp_path: Path) -> None:
    ending = await run_wat(CALL, tmp_path, functions=[spear("call", "", "i", raising(RunStopped())), EXIT])

    assert ending.ended_by == "internal"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own elsewhere")
async def test_was_1_guests_run_after_all_that_serves_callers(tmp_path: Path) -> None:
    niceness = []

    def request(_guest: Guest[Any]) -> int:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return 0

    wat = """(module (import "spear" "ask" (func $ask (result i32)))
      (func (export "_start") (drop (call $ask))))"""
    await run_wat(wat, tmp_path, functions=[spear("ask", "", "i", request)])

    assert niceness == [min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)]
