"""What a guest has of WASI: real guests in real slots; some say on a call of the test's what to try."""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.soak import rounds
from tests.wasm.wat import LIMITS, run_wat, spear
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.abi import WASI, HostcallFault
from toolgate.wasm.guest import Guest
from toolgate.wasm.wasi import MAX_IOVECS, MAX_SLEEP_NS, MAX_TRANSFER_BYTES, WASI_FUNCTIONS, WasiErrno

pytestmark = pytest.mark.anyio

BY_NAME = {function.name: function for function in WASI_FUNCTIONS}
OK = WasiErrno.SUCCESS
PAGES = 64
END = PAGES * 65_536
TRIES = f"""(module
  (import "spear" "try" (func $try))
  (memory (export "memory") {PAGES})
  (func (export "_start") (call $try)))"""

Wasi = Callable[..., int]


async def trying(
    tmp_path: Path, attempt: Callable[[Guest[Any], Wasi], object], **given: Any
) -> tuple[Any, InvocationResult]:
    """What `attempt` gives, which is made on the thread of a guest, with its memory."""
    given_back: list[Any] = []

    def call(guest: Guest[Any]) -> None:
        def wasi(name: str, *args: int) -> int:
            function = BY_NAME[name]
            try:
                return function.call(guest, *args) or OK
            except HostcallFault as fault:
                return function.failure(fault.errno)

        given_back.append(attempt(guest, wasi))

    ending = await run_wat(TRIES, tmp_path, functions=[spear("try", "", "", call)], **given)
    return (given_back[0] if given_back else None), ending


def u32s(guest: Guest[Any], pointer: int, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}I", guest.read(pointer, 4 * count, most=4 * count)))


async def test_a_guest_writes_and_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    guest = f"""(module
      (import "{WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "{WASI}" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (data (i32.const 0) "\\10\\00\\00\\00\\06\\00\\00\\00hello\\n  hello\\n")
      (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 64)))
        (call $exit (i32.load (i32.const 64)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))))"""

    ending = await run_wat(guest, tmp_path, functions=WASI_FUNCTIONS)

    assert (ending.ended_by, ending.exit_code) == ("exit", 6)
    assert (ending.stdout, ending.stderr) == (b"hello\n", b"hello\n")


async def test_arguments_and_variables_are_laid_out_as_c_has_them(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        sent_text = []
        for what in ("args", "environ"):
            assert wasi(f"{what}_sizes_get", 0, 4) == OK
            count, size = u32s(guest, 0, 2)
            assert wasi(f"{what}_get", 16, 64) == OK
            sent_text.append((u32s(guest, 16, count), guest.read(64, size, most=size)))
        return sent_text

    sent_text, _ = await trying(tmp_path, attempt, args=("task", "--fast", ""), env={"A": "1", "B": "zwö"})

    assert sent_text == [([64, 69, 76], b"task\0--fast\0\0"), ([64, 68], "A=1\0B=zwö\0".encode())]


async def test_input_is_read_once_in_pieces_to_its_end(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        read = []
        for _ in range(3):
            guest.write(0, struct.pack("<IIII", 100, 2, 200, 3))
            assert wasi("fd_read", 0, 0, 2, 40) == OK
            read.append((guest.read_u32(40), guest.read(100, 2, most=2), guest.read(200, 3, most=3)))
        return read

    read, _ = await trying(tmp_path, attempt, input_=b"abcdefg")

    assert read == [(5, b"ab", b"cde"), (2, b"fg", b"cde"), (0, b"fg", b"cde")]


async def test_a_read_into_bad_memory_takes_nothing_of_the_input(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        guest.write(0, struct.pack("<IIII", 100, 2, END - 1, 3))
        failed = [wasi("fd_read", 0, 0, 2, 40), wasi("fd_read", 0, 0, 1, END - 3)]
        assert wasi("fd_read", 0, 0, 1, 40) == OK
        return failed, guest.read(100, 2, most=2)

    sent_text, _ = await trying(tmp_path, attempt, input_=b"abcdefg")

    assert sent_text == ([WasiErrno.FAULT, WasiErrno.FAULT], b"ab")


async def test_output_past_its_limit_is_dropped_and_the_guest_need_not_care(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        guest.write(0, struct.pack("<IIII", 100, 6, 200, 6) + b"\0" * 84 + b"secret")
        guest.write(200, b"public")
        return wasi("fd_write", 1, 0, 2, 40), guest.read_u32(40), wasi("fd_write", 1, 0, 2, 40)

    sent_text, ending = await trying(tmp_path, attempt, limits=WorkloadLimits(max_output_bytes=10))

    assert sent_text == (OK, 12, OK)
    assert (ending.stdout, ending.is_truncated) == (b"secretpubl", True)


async def test_one_call_writes_no_more_than_its_share_however_often_it_names_the_same_bytes(
    tmp_path: Path,
) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        guest.write(0, struct.pack("<II", 0, END) * MAX_IOVECS)
        pointer = MAX_IOVECS * 8
        return (
            wasi("fd_write", 1, 0, MAX_IOVECS, pointer),
            guest.read_u32(pointer),
            wasi("fd_write", 1, 0, MAX_IOVECS + 1, pointer),
            wasi("fd_write", 1, 0, -1, pointer),
        )

    sent_text, _ = await trying(tmp_path, attempt)

    assert sent_text == (OK, MAX_TRANSFER_BYTES, WasiErrno.INVAL, WasiErrno.INVAL)


async def test_there_are_three_streams_and_nothing_else(tmp_path: Path) -> None:
    """WAS-4"""

    def attempt(_: Guest[Any], wasi: Wasi) -> Any:
        responses: dict[str, set[int]] = {}
        for name, function in BY_NAME.items():
            if name.startswith(("fd_", "path_", "sock_")):
                arity = len(function.params)
                for fd in (-1, 3, 1000, 2**31 - 1):
                    args = [0] * arity
                    args[2 if name == "path_symlink" else 0] = fd
                    responses.setdefault(name, set()).add(wasi(name, *args))
        return responses

    responses, _ = await trying(tmp_path, attempt)

    assert len(responses) == 35
    assert {name for name, found in responses.items() if found != {WasiErrno.BADF}} == set()


async def test_streams_look_like_a_terminal_and_cannot_be_moved_in(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        stats = []
        for fd in (0, 1, 2):
            assert wasi("fd_fdstat_get", fd, 0) == OK
            assert wasi("fd_filestat_get", fd, 64) == OK
            stats.append((guest.read(0, 1, most=1), guest.read(80, 1, most=1)))
        return stats, wasi("fd_seek", 1, 0, 0, 0), wasi("fd_close", 1), wasi("path_open", *[0] * 9)

    sent_text, _ = await trying(tmp_path, attempt)

    assert sent_text == ([(b"\2", b"\2")] * 3, WasiErrno.SPIPE, OK, WasiErrno.NOTDIR)


async def test_clocks_tell_the_time_and_those_of_processors_are_not_there(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        assert [wasi("clock_time_get", clock, 0, 8 * clock) for clock in (0, 1)] == [OK, OK]
        assert wasi("clock_res_get", 1, 16) == OK
        real, steady, resolution = struct.unpack("<QQQ", guest.read(0, 24, most=24))
        refused = {wasi("clock_time_get", clock, 0, 0) for clock in (2, 3, 4, -1)}
        return real, steady, resolution, refused | {wasi("clock_res_get", 2, 0)}

    before_ns = time.time_ns(), time.monotonic_ns()
    (real, steady, resolution, refused), _ = await trying(tmp_path, attempt)

    assert before_ns[0] <= real <= time.time_ns()
    assert before_ns[1] <= steady <= time.monotonic_ns()
    assert (resolution, refused) == (1, {WasiErrno.INVAL})


async def test_chance_fills_all_that_is_requested_or_nothing(tmp_path: Path) -> None:
    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        refused = [wasi("random_get", 16, END), wasi("random_get", END - 4, -1), wasi("random_get", -1, 1)]
        untouched = guest.read(0, END, most=END)
        assert wasi("random_get", 16, 200_000) == OK
        assert wasi("random_get", END, 0) == OK
        filled = guest.read(0, 200_032, most=200_032)
        return refused, untouched, filled

    (refused, untouched, filled), _ = await trying(tmp_path, attempt)

    assert refused == [WasiErrno.FAULT] * 3
    assert untouched == bytes(END)
    assert filled[:16] == filled[-16:] == bytes(16)
    assert all(any(filled[start : start + 32]) for start in range(16, 200_016, 32))


def clock(mark: int, timeout_ns: int, *, clock_id: int = 1, flags: int = 0) -> bytes:
    return struct.pack("<QBxxxxxxxIxxxxQQHxxxxxx", mark, 0, clock_id, timeout_ns, 0, flags)


def stream(mark: int, kind: int, fd: int) -> bytes:
    return struct.pack("<QBxxxxxxxI28x", mark, kind, fd & 0xFFFF_FFFF)


def polled(guest: Guest[Any], wasi: Wasi, *subscriptions: bytes) -> list[tuple[int, int, int]]:
    guest.write(0, b"".join(subscriptions))
    assert wasi("poll_oneoff", 0, 1024, len(subscriptions), 4096) == OK
    count = guest.read_u32(4096)
    events = struct.iter_unpack("<QHB21x", guest.read(1024, 32 * count, most=32 * count))
    return [(mark, errno, kind) for mark, errno, kind in events]


async def test_a_poll_says_what_has_come_and_waits_for_the_earliest_clock(tmp_path: Path) -> None:
    past_ns = time.monotonic_ns()

    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        return [
            polled(guest, wasi, clock(7, 1_000_000), clock(8, 2**64 - 1), clock(9, 1_000_000)),
            polled(guest, wasi, clock(1, past_ns, flags=1), clock(2, 2**64 - 1, flags=1)),
            polled(guest, wasi, clock(1, 2**64 - 1), stream(2, 1, 0), stream(3, 2, 1)),
            polled(guest, wasi, stream(4, 1, 1), stream(5, 2, 0), stream(6, 1, -1), clock(7, 5, clock_id=2)),
            [wasi("poll_oneoff", 0, 1024, count, 4096) for count in (0, -1, 1_025)],
            [
                wasi("poll_oneoff", *where)
                for where in ((END - 4, 0, 1, 0), (0, END - 4, 1, 0), (0, 0, 1, END))
            ],
        ]

    sent_text, _ = await trying(tmp_path, attempt)

    assert sent_text == [
        [(7, 0, 0), (9, 0, 0)],
        [(1, 0, 0)],
        [(2, 0, 1), (3, 0, 2)],
        [(4, WasiErrno.BADF, 1), (5, WasiErrno.BADF, 2), (6, WasiErrno.BADF, 1), (7, WasiErrno.INVAL, 0)],
        [WasiErrno.INVAL] * 3,
        [WasiErrno.FAULT] * 3,
    ]


class Sleepless:
    """A guest whose pauses are noted and not made."""

    def __init__(self, guest: Guest[Any]) -> None:
        self._guest = guest
        self.pauses_s: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guest, name)

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)


@pytest.mark.soak
async def test_polls_of_anything_are_answered(tmp_path: Path) -> None:
    """WAS-3"""
    chance = random.Random(7)
    times = rounds(suite=2_000, soak=100_000)

    def attempt(guest: Guest[Any], _wasi: Wasi) -> Any:
        awake = Sleepless(guest)
        codes = set()
        for _ in range(times):
            count = chance.randrange(1, 9)
            subscriptions = [
                struct.pack(
                    "<QBxxxxxxxIxxxxQQHxxxxxx",
                    *(chance.getrandbits(64), chance.choice([0, 0, 0, 1, 2, chance.randrange(256)])),
                    *(chance.choice([0, 1, 2, 3, 2**32 - 1]), chance.getrandbits(chance.randrange(1, 65))),
                    *(chance.getrandbits(64), chance.getrandbits(16)),
                )
                for _ in range(count)
            ]
            guest.write(0, b"".join(subscriptions))
            out = chance.choice([0, 1024, END - 256, END - 8, -1])
            try:
                codes.add(BY_NAME["poll_oneoff"].call(awake, 0, out, count, chance.choice([4096, END - 3])))
            except HostcallFault as fault:
                codes.add(BY_NAME["poll_oneoff"].failure(fault.errno))
        return codes, awake.pauses_s

    (codes, pauses_s), _ = await trying(tmp_path, attempt, limits=WorkloadLimits(wall_clock_ms=3_600_000))

    assert codes == {OK, WasiErrno.FAULT, WasiErrno.INVAL}
    assert len(pauses_s) > times / 10
    assert min(pauses_s) >= 0
    assert max(pauses_s) <= MAX_SLEEP_NS / 1e9


@pytest.mark.parametrize("timeout_ns", [2**63, 2**64 - 1])
async def test_a_guest_that_sleeps_for_ever_ends_at_its_deadline(tmp_path: Path, timeout_ns: int) -> None:
    """WAS-1, in a pause"""

    def attempt(guest: Guest[Any], wasi: Wasi) -> Any:
        return polled(guest, wasi, clock(1, timeout_ns))

    sent_text, ending = await trying(tmp_path, attempt, limits=WorkloadLimits(wall_clock_ms=50))

    assert (sent_text, ending.ended_by) == (None, "deadline")


async def test_a_guest_in_a_loop_of_yields_ends_at_its_deadline(tmp_path: Path) -> None:
    guest = f"""(module
      (import "{WASI}" "sched_yield" (func $yield (result i32)))
      (func (export "_start") (loop $again (drop (call $yield)) (br $again))))"""

    ending = await run_wat(
        guest, tmp_path, functions=WASI_FUNCTIONS, limits=WorkloadLimits(wall_clock_ms=50, fuel=LIMITS.fuel)
    )

    assert ending.ended_by == "deadline"
