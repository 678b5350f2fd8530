"""The memory of a guest: no pointer and no length of its making reaches outside, or breaks the host."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.scenarios.soak import rounds
from tests.wasm.wat import compiled, job, run_wat, spear
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.abi import Errno, HostcallFault
from toolgate.wasm.guest import Guest
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

PAGE: Final = 65_536
MOST: Final = 5_000
WORDS: Final = 3_000


def u32(value: int) -> int:
    return value & 0xFFFF_FFFF


def expected(operation: int, pointer: int, length: int, size: int) -> Errno | None:
    """What is to come of a call, said another way."""
    start, span = u32(pointer), u32(length)
    match operation:
        case 0:
            return Errno.EFAULT if start + span > size else Errno.EINVAL if span > MOST else None
        case 1 | 2:
            return Errno.EFAULT if start + 4 > size else None
        case _:
            span %= MOST
            return Errno.EFAULT if start + span > size else None


class Prober:
    """Gives a guest words to call with, and tries every way into its memory with what it calls with."""

    def __init__(self, tries: int, seed: int) -> None:
        self.left = tries
        self.wrong: list[object] = []
        self.size = 2 * PAGE
        self.seen = 0
        self._random = random.Random(seed)

    def refill(self, guest: Guest[Any]) -> int:
        if self.left <= 0:
            return 0
        words = [self._word() for _ in range(WORDS)]
        guest.write(0, struct.pack(f"<{WORDS}i", *words))
        return 1

    def probe(self, guest: Guest[Any], chosen: int, pointer: int, length: int) -> int:
        self.left -= 1
        operation = chosen % 4
        calls: list[Callable[[], object]] = [
            lambda: guest.read(pointer, length, most=MOST),
            lambda: guest.read_u32(pointer),
            lambda: guest.write_u32(pointer, length),
            lambda: guest.write(pointer, bytes(u32(length) % MOST)),
        ]
        found = None
        try:
            calls[operation]()
        except HostcallFault as fault:
            found = fault.errno
        self.seen |= 1 << (found or 0)
        if found != expected(operation, pointer, length, self.size):
            self.wrong.append((operation, pointer, length, found))
        try:
            capacity = guest.check_out(pointer, length)
            guest.put_out(pointer, length, bytes(u32(chosen) % MOST))
            if u32(pointer) + capacity > self.size:
                self.wrong.append(("out", pointer, length, capacity))
        except HostcallFault as fault:
            if fault.errno not in (Errno.EFAULT, Errno.ENOSPC):
                self.wrong.append(fault)
        return guest.put_out(pointer, length, b"")

    def _word(self) -> int:
        edges = (0, 1, 3, 4, MOST, PAGE, self.size - 4, self.size, 2**31 - 1, -1, -4, -(2**31), -self.size)
        pick = self._random.random()
        if pick < 0.4:
            near = self._random.choice(edges) + self._random.randint(-2, 2)
            return (near + 2**31) % 2**32 - 2**31
        if pick < 0.8:
            return self._random.randrange(0, self.size)
        return self._random.randint(-(2**31), 2**31 - 1)


PROBING = f"""(module
  (import "spear" "refill" (func $refill (result i32)))
  (import "spear" "probe" (func $probe (param i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $at i32)
    (loop $fill
      (if (call $refill) (then
        (local.set $at (i32.const 0))
        (loop $next
          (drop (call $probe
            (i32.load (local.get $at))
            (i32.load (i32.add (local.get $at) (i32.const 4)))
            (i32.load (i32.add (local.get $at) (i32.const 8)))))
          (local.set $at (i32.add (local.get $at) (i32.const 12)))
          (br_if $next (i32.lt_u (local.get $at) (i32.const {WORDS * 4}))))
        (br $fill))))))"""


@pytest.mark.soak
async def test_was_3_random_pointers_and_lengths_are_answered_by_number(tmp_path: Path) -> None:
    """WAS-3"""
    prober = Prober(rounds(suite=20_000, soak=1_000_000), seed=3)
    functions = [spear("refill", "", "i", prober.refill), spear("probe", "iii", "i", prober.probe)]

    ending = await run_wat(
        PROBING, tmp_path, functions=functions, limits=WorkloadLimits(wall_clock_ms=3_600_000)
    )

    assert (ending.ended_by, prober.wrong) == ("exit", [])
    assert prober.seen == 1 | 1 << Errno.EFAULT | 1 << Errno.EINVAL


async def tried(
    call: Callable[[Guest[Any]], object], tmp_path: Path, memory: str = '(memory (export "memory") 1)'
) -> object:
    """What comes of `call` in a guest with such a memory: a value, or a number of failure."""
    found: list[object] = []

    def touch(guest: Guest[Any]) -> None:
        try:
            found.append(call(guest))
        except HostcallFault as fault:
            found.append(fault.errno)

    wat = f'(module (import "spear" "touch" (func $t)) {memory} (func (export "_start") (call $t)))'
    await run_wat(wat, tmp_path, functions=[spear("touch", "", "", touch)])
    return found[0]


def out_of(capacity: int, data: bytes) -> Callable[[Guest[Any]], object]:
    def call(guest: Guest[Any]) -> object:
        guest.write_u32(0, capacity)
        guest.write(100, b"....")
        try:
            returned: object = guest.put_out(100, 0, data)
        except HostcallFault as fault:
            returned = fault.errno
        return returned, guest.read_u32(0), guest.read(100, 4, most=4)

    return call


@pytest.mark.parametrize(
    ("capacity", "data", "returned"),
    [
        pytest.param(4, b"ab", (2, 2, b"ab.."), id="it fits"),
        pytest.param(2, b"ab", (2, 2, b"ab.."), id="just"),
        pytest.param(1, b"ab", (Errno.ENOSPC, 2, b"...."), id="too small"),
        pytest.param(0, b"", (0, 0, b"...."), id="nothing"),
        pytest.param(PAGE - 100, b"ab", (2, 2, b"ab.."), id="up to the end"),
        pytest.param(PAGE - 99, b"ab", (Errno.EFAULT, PAGE - 99, b"...."), id="over the end"),
        pytest.param(2**32 - 1, b"ab", (Errno.EFAULT, 2**32 - 1, b"...."), id="over all ends"),
    ],
)
async def test_was_8_a_buffer_that_is_too_small_is_reported_how_much_is_needed(
    tmp_path: Path, capacity: int, data: bytes, returned: tuple[object, ...]
) -> None:
    """WAS-8"""
    assert await tried(out_of(capacity, data), tmp_path) == returned


ACCESSES: dict[str, Callable[[Guest[Any]], object]] = {
    "read": lambda guest: guest.read(0, 0, most=1),
    "read_u32": lambda guest: guest.read_u32(0),
    "write": lambda guest: guest.write(0, b"x"),
    "write_u32": lambda guest: guest.write_u32(0, 1),
    "check_out": lambda guest: guest.check_out(0, 0),
    "put_out": lambda guest: guest.put_out(0, 0, b""),
}


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES.keys())
@pytest.mark.parametrize(
    "memory",
    [pytest.param("(memory 1)", id="kept"), pytest.param('(func (export "memory"))', id="no memory")],
)
async def test_was_3_without_a_memory_every_pointer_is_bad(
    tmp_path: Path, memory: str, access: Callable[[Guest[Any]], object]
) -> None:
    """WAS-3"""
    assert await tried(access, tmp_path, memory) == Errno.EFAULT


async def test_was_3_an_empty_memory_holds_nothing_but_emptiness(tmp_path: Path) -> None:
    """WAS-3"""
    memory = '(memory (export "memory") 0)'

    assert await tried(lambda guest: guest.read(0, 0, most=1), tmp_path, memory) == b""
    assert await tried(lambda guest: guest.write(0, b""), tmp_path, memory) is None
    assert await tried(lambda guest: guest.read(0, 1, most=1), tmp_path, memory) == Errno.EFAULT


async def test_a_guest_may_call_before_it_has_started(tmp_path: Path) -> None:
    """Its memory is there in its start function already."""
    seen = []
    wat = """(module (import "spear" "touch" (func $touch))
      (memory (export "memory") 1) (data (i32.const 8) "hi")
      (start $s) (func $s (call $touch)) (func (export "_start")))"""

    touch = spear("touch", "", "", lambda guest: seen.append(guest.read(8, 2, most=2)))
    await run_wat(wat, tmp_path, functions=[touch])

    assert seen == [b"hi"]


async def test_the_next_guest_of_a_slot_finds_nothing_of_the_last(tmp_path: Path) -> None:
    """WAS-11"""
    seen = []

    def swap(guest: Guest[Any]) -> None:
        seen.append(guest.read(0, 6, most=6))
        guest.write(0, b"secret")

    wat = """(module (import "spear" "swap" (func $s)) (memory (export "memory") 1)
      (func (export "_start") (call $s)))"""
    async with Slots([spear("swap", "", "", swap)], max_guests=1) as slots:
        for _ in range(3):
            await slots.run(GuestRun(job(compiled(wat, tmp_path), None)))

    assert seen == [bytes(6)] * 3
