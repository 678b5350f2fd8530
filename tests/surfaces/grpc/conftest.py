"""One loop for all tests of a module: the library has one queue for all loops of a process, and what is still
in it when a loop is closed would fail the next.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    yield
    for _ in range(100):
        await asyncio.sleep(0)
