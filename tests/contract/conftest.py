"""What the suites of links share, those of places to keep archives in, of the queue, and of replicas.

One that tries other links says so by a fixture `subject` of its own.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.contract.links import RELAYING, Ears, Subject
from tests.contract.object_stores import KINDS, open_bucket, open_objects
from tests.contract.stores import STORES, Clock, open_postgres
from toolgate.packages.objects import ObjectStore
from toolgate.registry.invocations import QueueLimits
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.store import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.sql_store import Store
from toolgate.upstream.connection.contract import ServerConnection

MINUTE_MS = 60_000
NEVER_POLLS = StoreLimits(poll_s=3_600.0, queue=QueueLimits(poll_s=3_600.0))


@pytest.fixture(params=RELAYING)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    opens, era = RELAYING[request.param]
    async with opens(era) as subject:
        yield subject


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
async def link(subject: Subject, ears: Ears) -> AsyncIterator[ServerConnection]:
    link = await subject.opener(subject.record, ears, known_revision=None)
    yield link
    await link.aclose()


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    with open_bucket() as environ:
        yield environ


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path, bucket: dict[str, str]) -> ObjectStore:
    return open_objects(request.param, tmp_path, bucket)


@pytest.fixture
def lease_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What leases are measured by, on every engine."""
    clock = Clock()

    def read_clock_ms(_store: object, _connection: Connection) -> int:
        return clock()

    monkeypatch.setattr("toolgate.registry.store.postgresql.PostgresStore._read_clock_ms", read_clock_ms)
    return clock


@pytest.fixture
def store_limits() -> StoreLimits:
    """The limits of `queue_store`; a test that needs others parametrizes this name."""
    return DEFAULT_STORE_LIMITS


@pytest.fixture(params=STORES)
async def queue_store(
    request: pytest.FixtureRequest, tmp_path: Path, lease_clock: Clock, store_limits: StoreLimits
) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, lease_clock, store_limits) as opened:
        yield opened


@pytest.fixture
def queue(queue_store: Store) -> Invocations:
    return queue_store.invocations


@pytest.fixture
def clocks() -> tuple[Clock, Clock]:
    """WAT-11: ten minutes apart."""
    return Clock(100 * MINUTE_MS), Clock(90 * MINUTE_MS)


@pytest.fixture
async def replicas(tmp_path: Path, clocks: tuple[Clock, Clock]) -> AsyncIterator[tuple[Store, Store]]:
    """They hear of each other by notifications alone: neither polls within a test."""
    async with (
        open_postgres(tmp_path, clocks[0], NEVER_POLLS) as one,
        open_postgres(tmp_path, clocks[1], NEVER_POLLS) as other,
    ):
        yield one, other
