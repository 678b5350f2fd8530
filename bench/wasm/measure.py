"""What guests cost: their calls, their start, their memory, many of them at once, and what the event loop feels of it.

    .venv/bin/python bench/wasm/measure.py [--turns 3]

The gateway runs in this process, with a server in its memory; the last measurement is `toolgate up` with a server on
stdio. Guests are WebAssembly text, but for `build/guests/mcp_direct.wasm`, which is C. Times of calls are those of a
loop inside of the guest, divided by its rounds; each is the median over the turns.
"""

import argparse
import asyncio
import hashlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import uvloop

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.scenarios.gateway import Site, running  # noqa: E402
from tests.surfaces.wasm.guest_world import GuestWorld, open_guest_world  # noqa: E402
from tests.upstream.memory_link import MemoryNet, MemoryServer, record  # noqa: E402
from tests.wasm.wat import compiled, job, spear  # noqa: E402
from wasmtime import wat2wasm  # noqa: E402

from toolgate.model.tasks import WorkloadLimits  # noqa: E402
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS  # noqa: E402
from toolgate.wasm.module_cache import CompiledModules  # noqa: E402
from toolgate.wasm.run import GuestRun  # noqa: E402
from toolgate.wasm.slots import Slots  # noqa: E402

GUEST = PROJECT / "build/guests/mcp_direct.wasm"
STDIO = PROJECT / "bench/harness/upstream_stdio.py"
LIMITS = WorkloadLimits(wall_clock_ms=300_000, fuel=10**13, max_calls=10**6)
CALLS, TOOL_CALLS, GUESTS, HOSTCALLS, SPIN_S = 20_000, 2_000, 200, 28, 3.0

IDLE = '(module (memory (export "memory") 1) (func (export "_start")))'
SPIN = '(module (memory (export "memory") 1) (func (export "_start") (loop $again (br $again))))'
SLEEP = ('(module (import "spear" "rest" (func $rest)) (memory (export "memory") 4)'
         ' (func (export "_start") (call $rest)))')


def loop_wat(imports: str, before: str, body: str, rounds: int) -> str:
    """A guest that does `body` so often. 0: the id of the server; 16: the tool; 32: arguments; 1024: a buffer."""
    return f"""(module {imports} (memory (export "memory") 2)
      (data (i32.const 0) "one") (data (i32.const 16) "echo") (data (i32.const 32) "{{\\22text\\22:\\22said\\22}}")
      (func (export "_start") (local $left i32) (local $fd i32) {before}
        (local.set $left (i32.const {rounds}))
        (loop $again {body}
          (local.set $left (i32.sub (local.get $left) (i32.const 1))) (br_if $again (local.get $left)))))"""


def import_of(name: str, params: str, result: str) -> str:
    given = f"(param {params})" if params else ""
    return f'(import "spear" "{name}" (func ${name} {given} (result {result})))'


def tool_wat(rounds: int) -> str:
    """Each call is checked: below 0 the guest traps."""
    return loop_wat(
        import_of("mcp_open", "i32 i32", "i32") + import_of("mcp_call_tool", "i32 i32 i32 i32 i32 i32 i32", "i32"),
        "(local.set $fd (call $mcp_open (i32.const 0) (i32.const 3)))",
        """(i32.store (i32.const 1020) (i32.const 4096))
           (if (i32.lt_s (call $mcp_call_tool (local.get $fd) (i32.const 16) (i32.const 4) (i32.const 32) (i32.const 15)
                         (i32.const 1024) (i32.const 1020)) (i32.const 0)) (then unreachable))""",
        rounds,
    )


HOSTCALL = loop_wat(import_of("time_now_ms", "", "i64"), "", "(drop (call $time_now_ms))", CALLS)
STATUS = loop_wat(
    import_of("spear_epoll_create", "", "i32") + import_of("spear_fd_ctl", "i32 i32 i32 i32", "i32"),
    "(local.set $fd (call $spear_epoll_create))",
    "(i32.store (i32.const 1020) (i32.const 4096))"
    "(drop (call $spear_fd_ctl (local.get $fd) (i32.const 3) (i32.const 1024) (i32.const 1020)))",
    CALLS,
)


class Bench:
    """The gateway, the slots, and where compiled modules are."""

    def __init__(self, world: GuestWorld, directory: Path, turns: int) -> None:
        self.world, self.directory, self.turns = world, directory, turns

    def run_of(self, wat: str) -> GuestRun:
        return GuestRun(job(compiled(wat, self.directory), self.world.context(max_calls=10**6), limits=LIMITS))

    async def per_round_us(self, wat: str, rounds: int) -> float:
        """The median time of one round of a guest's loop."""
        took = []
        async with Slots(ALL_FUNCTIONS, max_guests=1) as slots:
            await ended(slots, self.run_of(IDLE))
            for _ in range(self.turns):
                began = time.perf_counter()
                await ended(slots, self.run_of(wat))
                took.append((time.perf_counter() - began) / rounds * 1e6)
        return statistics.median(took)


async def ended(slots: Slots, run: GuestRun) -> None:
    ending = await slots.run(run)
    assert ending.ended_by == "exit" or run.job.workload.limits is not LIMITS, ending


async def starts(bench: Bench) -> dict[str, float]:
    """Milliseconds from a module to a guest that has ended, first with nothing there, then with more and more."""
    binary = GUEST.read_bytes()
    sha256 = hashlib.sha256(binary).hexdigest()

    async def fetch(_: str) -> AsyncIterator[bytes]:
        yield binary

    found: dict[str, float] = {}
    async with CompiledModules(bench.directory / "modules", fetch, named=lambda: [sha256]) as modules:
        began = time.perf_counter()
        path = await modules.open(sha256)
        found["compiled in a child, once a node, 28 KB of C"] = (time.perf_counter() - began) * 1e3
    colds, warms = [], []
    for _ in range(bench.turns * 10):
        async with Slots(ALL_FUNCTIONS, max_guests=1) as slots:
            for took in (colds, warms):
                run = GuestRun(job(path, bench.world.context(), limits=LIMITS))
                began = time.perf_counter()
                await slots.run(run)
                took.append((time.perf_counter() - began) * 1e3)
    found["cold: thread, engine, load, instantiate, run to its end"] = statistics.median(colds)
    found["warm: instantiate, run to its end"] = statistics.median(warms)
    return found


async def idle_kib(bench: Bench) -> float:
    """What a guest that waits adds to the process, of 200."""
    arrived = threading.Semaphore(0)

    def rest(guest) -> None:
        arrived.release()
        guest.sleep(None)

    process = psutil.Process()
    path = compiled(SLEEP, bench.directory)
    async with Slots([spear("rest", "", "", rest)], max_guests=GUESTS) as slots:
        before = process.memory_info().rss
        runs = [GuestRun(job(path, bench.world.context(), limits=LIMITS)) for _ in range(GUESTS)]
        tasks = [asyncio.create_task(slots.run(run)) for run in runs]
        for _ in range(GUESTS):
            await asyncio.to_thread(arrived.acquire)
        grown = (process.memory_info().rss - before) / 1024 / GUESTS
        for run in runs:
            run.kill("cancelled", "measured")
        await asyncio.gather(*tasks)
    return grown


async def crowd_s(bench: Bench) -> float:
    """200 guests at once, 28 calls of tools each."""
    took = []
    async with Slots(ALL_FUNCTIONS, max_guests=GUESTS) as slots:
        for _ in range(bench.turns + 1):
            runs = [bench.run_of(tool_wat(HOSTCALLS)) for _ in range(GUESTS)]
            began = time.perf_counter()
            await asyncio.gather(*(ended(slots, run) for run in runs))
            took.append(time.perf_counter() - began)
    return statistics.median(took[1:])  # the first made the threads


async def lag_ms(bench: Bench, spinning: int) -> tuple[float, float, float]:
    """How late the event loop is while guests spin: median, p99, worst."""
    late = []
    async with Slots(ALL_FUNCTIONS, max_guests=max(1, spinning)) as slots:
        tasks = [asyncio.create_task(slots.run(bench.run_of(SPIN))) for _ in range(spinning)]
        await asyncio.sleep(0.2)
        ends = time.perf_counter() + SPIN_S
        while (began := time.perf_counter()) < ends:
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - began - 0.001) * 1e3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    late.sort()
    return statistics.median(late), late[int(len(late) * 0.99)], late[-1]


def stdio_us(directory: Path, turns: int) -> float:
    """A call of a tool on stdio, from a guest of `toolgate up`."""
    site = Site(directory / "site")
    site.place(site.server("one", stdio={"command": sys.executable, "args": [str(STDIO)]}))
    (directory / "loop.wasm").write_bytes(wat2wasm(tool_wat(TOOL_CALLS)))
    (directory / "bench.toml").write_text(
        'task_id = "bench"\n[config]\nmcp.enabled = true\nmcp.default_server_ids = ["one"]\n'
        f'[workload]\nmodule = "loop.wasm"\nlimits = {{ max_calls = {TOOL_CALLS} }}\n', "utf-8")
    with running(site) as gateway:
        applied = gateway.cli("apply", "-f", str(directory / "bench.toml"))
        assert applied.code == 0, applied.err
        took = []
        for _ in range(turns + 1):
            shown = gateway.http.post("/api/v1/tasks/bench/invocations", json={}, timeout=120).raise_for_status().json()
            assert shown["state"] == "succeeded", shown
            took.append(shown["ending"]["usage"]["wall_ms"] * 1e3 / TOOL_CALLS)
    return statistics.median(took[1:])


@asynccontextmanager
async def opened(directory: Path, turns: int) -> AsyncIterator[Bench]:
    one = record("one", allowed_tools=("*",), concurrency=256)
    async with open_guest_world(MemoryNet(one=MemoryServer()), one) as world:
        yield Bench(world, directory, turns)


async def measure(directory: Path, turns: int) -> None:
    async with opened(directory, turns) as bench:
        for name, wat, rounds in (
            ("hostcall without arguments (`time_now_ms`)", HOSTCALL, CALLS),
            ("hostcall that reads and writes memory (`spear_fd_ctl`)", STATUS, CALLS),
            ("`mcp_call_tool`, server in the same process", tool_wat(TOOL_CALLS), TOOL_CALLS),
        ):
            show(name, f"{await bench.per_round_us(wat, rounds):.0f} µs")
        for name, took_ms in (await starts(bench)).items():
            show(name, f"{took_ms:.3g} ms")
        show(f"memory of an idle guest, of {GUESTS}, with its thread", f"{await idle_kib(bench):.0f} KiB")
        took_s = await crowd_s(bench)
        show(f"{GUESTS} guests at once, {HOSTCALLS} calls of tools each",
             f"{took_s:.2f} s, {GUESTS * HOSTCALLS / took_s:,.0f} calls/s")
        for spinning in (0, 2, 50):
            median, p99, worst = await lag_ms(bench, spinning)
            show(f"event loop late, {spinning} guests spinning",
                 f"median {median:.2f} ms, p99 {p99:.1f} ms, worst {worst:.1f} ms")


def show(name: str, value: str) -> None:
    print(f"| {name} | {value} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    print("| what | |\n| --- | ---: |")
    with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
        uvloop.run(measure(Path(name), turns))
        show("`mcp_call_tool`, `toolgate up`, server on stdio", f"{stdio_us(Path(name), turns):.0f} µs")


if __name__ == "__main__":
    main()
