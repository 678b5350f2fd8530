"""Guests that want too much: of the processor, of memory, of tables, of the stack."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.wasm.wat import IDLE, SPIN, compiled, job, run_wat, spear
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.compiling import LIMITS
from toolgate.wasm.guest import Guest
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

PAGE = 65_536
DEEPER = '(module (func $deeper (call $deeper) (call $deeper)) (func (export "_start") (call $deeper)))'


def leave(guest: Guest[Any], code: int) -> None:
    guest.exit(code)


EXIT = spear("exit", "i", "", leave)


async def test_was_1_a_guest_that_spins_ends_when_its_fuel_is_used_up(tmp_path: Path) -> None:
    """WAS-1"""
    ending = await run_wat(SPIN, tmp_path, limits=WorkloadLimits(fuel=100_000))

    assert (ending.state, ending.ended_by, ending.usage.fuel) == ("failed", "out_of_fuel", 100_000)
    assert "limits.fuel" in ending.message


async def test_was_1_fuel_is_spent_before_the_start_too(tmp_path: Path) -> None:
    """WAS-1"""
    wat = '(module (func $s (loop $again (br $again))) (start $s) (func (export "_start")))'

    assert (await run_wat(wat, tmp_path, limits=WorkloadLimits(fuel=1_000))).ended_by == "out_of_fuel"


async def test_was_2_memory_grows_up_to_its_limit_and_no_further(tmp_path: Path) -> None:
    """WAS-2: the exit code is how often it grew."""
    wat = """(module (import "spear" "exit" (func $exit (param i32)))
      (memory (export "memory") 1) (global $n (mut i32) (i32.const 0))
      (func (export "_start")
        (loop $more
          (if (i32.ne (memory.grow (i32.const 1)) (i32.const -1))
            (then (global.set $n (i32.add (global.get $n) (i32.const 1))) (br $more))))
        (call $exit (global.get $n))))"""

    ending = await run_wat(wat, tmp_path, functions=[EXIT], limits=WorkloadLimits(memory_bytes=20 * PAGE + 5))

    assert (ending.exit_code, ending.usage.memory_bytes) == (19, 20 * PAGE)


async def test_was_2_memory_that_was_moved_is_read_where_it_is(tmp_path: Path) -> None:
    """WAS-2: past what is reserved for it, it moves as it grows."""
    seen = []

    def look(guest: Guest[Any], pointer: int) -> None:
        seen.append(guest.read(pointer, 2, most=2))
        guest.write(pointer, b"new")

    wat = """(module
      (import "spear" "look" (func $look (param i32)))
      (import "spear" "exit" (func $exit (param i32)))
      (memory (export "memory") 1) (data (i32.const 65530) "hi")
      (func (export "_start")
        (call $look (i32.const 65530))
        (drop (memory.grow (i32.const 2999)))
        (i32.store8 (i32.const 196607998) (i32.const 111)) (i32.store8 (i32.const 196607999) (i32.const 107))
        (call $look (i32.const 65530))
        (call $look (i32.const 196607990))
        (call $exit (i32.load8_u (i32.const 196607990)))))"""
    functions = [spear("look", "i", "", look), EXIT]

    ending = await run_wat(
        wat, tmp_path, functions=functions, limits=WorkloadLimits(memory_bytes=3_000 * PAGE)
    )

    assert (seen, ending.exit_code) == ([b"hi", b"ne", b"\0\0"], ord("n"))


async def test_was_2_tables_grow_up_to_their_limit_and_no_further(tmp_path: Path) -> None:
    """WAS-2"""
    wat = """(module (import "spear" "exit" (func $exit (param i32))) (table $t 10 funcref)
      (func (export "_start")
        (drop (table.grow $t (ref.null func) (i32.const 80)))
        (drop (table.grow $t (ref.null func) (i32.const 2000000000)))
        (drop (table.grow $t (ref.null func) (i32.const 11)))
        (call $exit (table.size $t))))"""

    ending = await run_wat(wat, tmp_path, functions=[EXIT], limits=WorkloadLimits(table_elements=100))

    assert ending.exit_code == 90


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param("(memory 1025)", id="memory"),
        pytest.param("(table 10001 funcref)", id="a table"),
        pytest.param("(table 1 funcref)" * 9, id="tables"),
    ],
)
async def test_was_2_a_module_that_begins_above_the_limits_is_not_begun(tmp_path: Path, fields: str) -> None:
    """WAS-2"""
    wat = f'(module {fields} (func (export "_start")))'

    ending = await run_wat(wat, tmp_path, limits=WorkloadLimits(memory_bytes=1024 * PAGE))

    assert (ending.state, ending.ended_by) == ("failed", "module")
    assert "limit" in ending.message


async def test_was_2_many_functions_and_as_many_exports_as_may_be_are_gone_through(tmp_path: Path) -> None:
    """WAS-2: more are refused when they are compiled."""
    functions = "(func)" * 3_000
    exports = "".join(f'(export "f{index}" (func 0))' for index in range(LIMITS.exports - 1))

    ending = await run_wat(f'(module {functions} {exports} (func (export "_start")))', tmp_path)

    assert ending.ended_by == "exit"


async def test_was_9_deep_recursion_ends_the_guest_and_not_the_host(tmp_path: Path) -> None:
    """WAS-9"""
    deep, idle = compiled(DEEPER, tmp_path), compiled(IDLE, tmp_path)
    async with Slots[None]([], max_guests=1) as slots:
        endings = [await slots.run(GuestRun(job(one, None))) for _ in range(20) for one in (deep, idle)]

    assert [one.ended_by for one in endings] == ["stack_overflow", "exit"] * 20
    assert "recurses" in endings[0].message


def test_was_9_deep_recursion_ends_the_guest_where_threads_have_small_stacks(tmp_path: Path) -> None:
    """WAS-9: in a process of its own, which would crash."""
    program = f"""if True:
        import asyncio, pathlib, threading
        from tests.wasm.wat import run_wat
        threading.stack_size(131_072)
        print(asyncio.run(run_wat({DEEPER!r}, pathlib.Path({str(tmp_path)!r}))).ended_by)"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, check=False
    )

    assert (ran.returncode, ran.stdout) == (0, b"stack_overflow\n")


async def test_was_9_calls_from_the_bottom_of_the_stack_have_room(tmp_path: Path) -> None:
    """WAS-9: the host's part of a call is not taken from the guest's stack."""
    wat = """(module (import "spear" "touch" (func $touch))
      (func $deeper (call $touch) (call $deeper) (call $touch)) (func (export "_start") (call $deeper)))"""

    ending = await run_wat(wat, tmp_path, functions=[spear("touch", "", "", lambda guest: None)])

    assert ending.ended_by == "stack_overflow"
    assert ending.usage.hostcalls > 1_000
