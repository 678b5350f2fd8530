"""What every test may use."""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from socketserver import TCPServer

import pytest
from hypothesis import HealthCheck, settings

from tests.forked_programs import stop_forker
from tests.grpc_queue import close_queue
from tests.postgres import remove_shared_server
from tests.scenarios.soak import rounds

# A property is about values, not about how busy the machine is that checks it.
# The same code gives the same result: what is tried is fixed, and only the long runs look for something new.
settings.register_profile(
    "toolgate",
    max_examples=rounds(suite=40, soak=400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="TOOLGATE_SOAK" not in os.environ,
)
settings.load_profile("toolgate")


# A busy machine may be late in taking connections: they wait, instead of being tried again after a second.
TCPServer.request_queue_size = 128

# Each HTTP client reads the trusted authorities when it is made. For us and the processes that tests start
# this is one that signed nothing: the 140 of the system take 25 ms.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

LONG = ("tests/scenarios/", "tests/console/", "tests/docs/", "tests/guests/", "tests/contract/", "tests/cli/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: of the workers that share them, none has a long one left when the others are done."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What was loaded until here stays to the end: no one needs to look through it again for garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Around all others: the loop of the test is closed, and the log records that pytest kept are gone."""
    try:
        yield
    finally:
        close_queue()


def pytest_unconfigure() -> None:
    remove_shared_server()
    stop_forker()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_logging() -> None:
    """Some libraries put handlers on the root logger when they are used: no test sees another's."""
    root = logging.getLogger()
    root.handlers[:] = [one for one in root.handlers if type(one).__module__.startswith("_pytest")]
    root.setLevel(logging.WARNING)
