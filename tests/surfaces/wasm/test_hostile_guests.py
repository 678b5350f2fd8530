"""Guests that mean harm get numbers for it, and the host stays as it was."""

import gc
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.soak import rounds
from tests.surfaces.wasm.guest_world import GuestWorld, open_guest_world
from tests.surfaces.wasm.hostile import functions, hostile
from tests.upstream.memory_link import MemoryNet, record
from tests.upstream.stdio_stage import resident_bytes
from tests.wasm.wat import compiled, job
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

CONFIG = {"default_server_ids": ["one"], "allowed_server_ids": ["one", "two"]}
LIMITS = WorkloadLimits(wall_clock_ms=3_600_000, max_calls=2_000, max_fds=1_000, fuel=10**12)
CALLS_A_RUN = 10_000


async def run_hostile(
    world: GuestWorld, slots: Slots[TaskContext], directory: Path, seed: int
) -> InvocationResult:
    module = compiled(hostile(CALLS_A_RUN, seed=seed), directory)
    context = world.context(max_calls=LIMITS.max_calls)
    ending = await slots.run(GuestRun(job(module, context, limits=LIMITS, input_=b"some input")))
    world.world.sink.events.clear()
    for server in world.net.servers.values():
        server.calls.clear()
    module.unlink()
    return ending


@pytest.mark.soak
async def test_hostile_calls_are_numbers_and_never_a_fault_of_the_host(tmp_path: Path) -> None:
    """WAS-3: every function, with arguments at every edge; what one run took is free after it."""
    chance = Random(rounds(suite=5, soak=Random().randrange(2**32)))
    seeds = [chance.randrange(1, 2**32) for _ in range(rounds(suite=5, soak=100))]
    records = [record(name, allowed_tools=("*",)) for name in ("one", "two", "three")]
    async with (
        open_guest_world(MemoryNet(), *records, config=CONFIG) as world,
        Slots[TaskContext](ALL_FUNCTIONS, max_guests=1) as slots,
    ):
        for number, seed in enumerate(seeds):
            ending = await run_hostile(world, slots, tmp_path, seed)
            assert (ending.ended_by, ending.exit_code) == ("exit", 0), (seed, ending)
            assert slots.host_faults == 0, seed
            assert ending.usage.hostcalls == CALLS_A_RUN, seed
            if number == 0:  # what is kept for good is there
                before = resident_bytes()
        gc.collect()
        grown = resident_bytes() - before

    assert grown < 24 * 1024 * 1024
    assert {one.name for one in ALL_FUNCTIONS} - {one.name for one in functions()} == {
        "poll_oneoff",
        "proc_exit",
    }
