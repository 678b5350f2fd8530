"""The calls that every guest has: time, pauses, chance, its log; and what comes of hostile numbers."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.soak import rounds
from tests.wasm.wat import compiled, job, run_wat, spear
from toolgate.model.invocations import MAX_LINE_BYTES
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import Errno, HostFunction
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

BAD = "\N{REPLACEMENT CHARACTER}"
LOG = """(module
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "spear" "told" (func $told (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "caf\\c3\\a9 \\ff\\00!")
  (func (export "_start")
    (call $told (call $log (i32.const 0) (i32.const 0) (i32.const 5)))
    (call $told (call $log (i32.const 4) (i32.const 0) (i32.const 9)))
    (call $told (call $log (i32.const 99) (i32.const 0) (i32.const 0)))
    (call $told (call $log (i32.const -1) (i32.const 64) (i32.const 16384)))
    (call $told (call $log (i32.const 2) (i32.const 0) (i32.const 16385)))
    (call $told (call $log (i32.const 2) (i32.const 65530) (i32.const 7)))
    (call $told (call $log (i32.const 2) (i32.const -1) (i32.const 1)))))"""


async def test_a_line_of_the_log_has_its_level_and_what_is_no_text_is_replaced(
    tmp_path: Path,
) -> None:
    received: list[int] = []
    functions = [*ALL_FUNCTIONS, spear("told", "i", "", lambda _, code: received.append(code))]
    run = GuestRun(job(compiled(LOG, tmp_path), None))
    async with Slots(functions, max_guests=1) as slots:
        await slots.run(run)

    lines = [(line.level, line.text) for line in run.output.take()]

    assert received == [0, 0, 0, 0, -Errno.EINVAL, -Errno.EFAULT, -Errno.EFAULT]
    assert lines == [
        ("trace", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
        ("error", f"caf\N{LATIN SMALL LETTER E WITH ACUTE} {BAD * 2}!"),
        ("info", ""),
        ("info", BAD * MAX_LINE_BYTES),
    ]


ASKS = """(module
  (import "spear" "time_now_ms" (func $ms (result i64)))
  (import "spear" "wall_time_s" (func $s (result i64)))
  (import "spear" "random_i64" (func $random (result i64)))
  (import "spear" "sleep_ms" (func $sleep (param i32)))
  (import "spear" "told" (func $told (param i64)))
  (func (export "_start")
    (call $sleep (i32.const 0))
    (call $sleep (i32.const -2147483648))
    (call $told (call $ms)) (call $told (call $s))
    (call $told (call $random)) (call $told (call $random))))"""


async def test_the_time_is_the_hosts_and_chance_differs_and_a_negative_pause_is_invalid(
    tmp_path: Path,
) -> None:
    received: list[int] = []
    functions = [*ALL_FUNCTIONS, spear("told", "I", "", lambda _, number: received.append(number))]
    before_s = time.time()

    ending = await run_wat(ASKS, tmp_path, functions=functions)

    now_ms, now_s, one, other = received
    assert ending.ended_by == "exit"
    assert int(before_s * 1000) <= now_ms <= time.time() * 1000
    assert int(before_s) <= now_s <= time.time()
    assert one != other


async def test_a_pause_ends_with_the_run(tmp_path: Path) -> None:
    """WAS-1, in a pause"""
    wat = """(module (import "spear" "sleep_ms" (func $sleep (param i32)))
      (func (export "_start") (call $sleep (i32.const 2147483647))))"""

    ending = await run_wat(wat, tmp_path, functions=ALL_FUNCTIONS, limits=WorkloadLimits(wall_clock_ms=50))

    assert ending.ended_by == "deadline"


WAITING = {"sleep_ms", "poll_oneoff", "proc_exit"}
OF_GATEWAY = ("cchat_", "mcp_", "spear_")
HOSTILE = [one for one in ALL_FUNCTIONS if one.name not in WAITING and not one.name.startswith(OF_GATEWAY)]
TYPES = {"i": "i32", "I": "i64"}


def hostile_guest(functions: list[HostFunction[Any]], times: int) -> str:
    """Calls each so often, with numbers that are small, huge, negative, or about the end of memory."""
    imports, calls = [], []
    for function in functions:
        params = "".join(f" (param {TYPES[one]})" for one in function.params)
        imports.append(
            f'(import "{function.module}" "{function.name}" (func ${function.name}{params}'
            f" (result {TYPES[function.result]})))"
        )
        args = "".join("(call $arg)" if one == "i" else "(call $wide)" for one in function.params)
        calls.append(f"(drop (call ${function.name} {args}))")
    return f"""(module {" ".join(imports)}
      (memory (export "memory") 1)
      (global $x (mut i32) (i32.const 2463534242))
      (func $next (result i32)
        (global.set $x (i32.xor (global.get $x) (i32.shl (global.get $x) (i32.const 13))))
        (global.set $x (i32.xor (global.get $x) (i32.shr_u (global.get $x) (i32.const 17))))
        (global.set $x (i32.xor (global.get $x) (i32.shl (global.get $x) (i32.const 5))))
        (global.get $x))
      (func $arg (result i32)
        (block $3 (block $2 (block $1 (block $0
          (br_table $0 $1 $2 $3 (i32.and (call $next) (i32.const 3))))
          (return (call $next)))
          (return (i32.and (call $next) (i32.const 7))))
          (return (i32.add (i32.const 65528) (i32.and (call $next) (i32.const 15)))))
        (i32.and (call $next) (i32.const 65535)))
      (func $wide (result i64) (i64.mul (i64.extend_i32_s (call $arg)) (i64.const 6364136223846793005)))
      (func (export "_start") (local $left i32)
        (local.set $left (i32.const {times}))
        (loop $again {" ".join(calls)}
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br_if $again (local.get $left)))))"""


@pytest.mark.soak
async def test_calls_with_any_numbers_are_answered_and_the_host_is_at_no_fault(tmp_path: Path) -> None:
    """WAS-3"""
    times = rounds(suite=400, soak=100_000)
    limits = WorkloadLimits(wall_clock_ms=3_600_000)

    ending = await run_wat(
        hostile_guest(HOSTILE, times), tmp_path, functions=HOSTILE, limits=limits, input_=b"some input" * 1000
    )

    assert (ending.ended_by, ending.exit_code, ending.message) == ("exit", 0, "")
    assert ending.usage.hostcalls == times * len(HOSTILE)
