"""Thousands of watchers at once: each costs little, and hears of a change like the first."""

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.soak import rounds
from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, server_message
from tests.surfaces.rest_world import secret_of

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(__file__).with_name("many_watchers.py")
PAGE_BYTES: Final = 4_096
MAX_KIB_EACH: Final = 36
"""23 of them are the gRPC library's, for a stream that does nothing at all."""
WARM: Final = 50
DEADLINE_S: Final = 240


@asynccontextmanager
async def watching(world: GrpcWorld, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """That many watchers, in a process of their own, each of which is current."""
    command = (str(PROGRAM), world.address, secret_of("node"), str(count))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert await line_of(process) == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)).decode().strip()


def resident_kib() -> float:
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES / 1024


@pytest.mark.soak
async def test_wat_8_idle_watchers_cost_little_and_all_hear_of_one_change() -> None:
    count = rounds(suite=500, soak=10_000)
    async with open_grpc_world() as world:
        async with watching(world, WARM):
            pass
        before = resident_kib()
        async with watching(world, count) as process:
            each = (resident_kib() - before) / count
            await world.upsert(server_message("git"))

            assert await line_of(process) == "heard"
    assert each <= MAX_KIB_EACH
