"""One loop for all tests of a module."""

from collections.abc import AsyncIterator

import pytest

from tests.grpc_loop import run_dry


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    yield
    await run_dry()
