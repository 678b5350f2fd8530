"""A PostgreSQL that drops connections, restarts, crashes, or comes back as another: the store heals."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing, suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.contract.stores import DEADLINE_S, Clock, put, read_watch
from tests.contract.watch_guarantees import events
from tests.postgres import PostgresServer, own_server
from tests.scenarios.soak import rounds
from tests.scenarios.wires import open_wire
from toolgate.errors import Compacted, StartRefused, StorageUnavailable
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.postgresql import PostgresStore, open_postgres_store

pytestmark = pytest.mark.anyio

CRASHES = rounds(suite=2, soak=40)
DROP_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
LISTENERS = f"{DROP_OTHERS} AND query LIKE 'LISTEN%'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_server() as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url, Clock()) as opened:
        yield opened


async def written(store: PostgresStore, n: int) -> int:
    """A write by someone who repeats it until it is acknowledged."""
    while True:
        with suppress(StorageUnavailable):
            return await store.write([put("fs", n=n)], actor="ada")
        await asyncio.sleep(0)


async def becomes_current(store: PostgresStore, expected: bool) -> None:
    while store.is_current is not expected:
        await asyncio.sleep(0)


async def read(batches: AsyncIterator[ChangeBatch], upto: int) -> list[ChangeBatch]:
    seen: list[ChangeBatch] = []
    while not seen or seen[-1].revision < upto:
        seen.append(await anext(batches))
    return seen


async def test_wat_2_a_dropped_listener_costs_no_watcher_anything(
    server: PostgresServer, url: str, store: PostgresStore
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres_store(url, Clock()) as other,
        store.watch(0) as batches,
    ):
        for n in range(1, 31):
            if n % 10 == 0:
                server.execute(LISTENERS)
            await written(other, n)
        seen = events(await read(batches, upto=30))

    assert [change.after for batch in seen for change in batch.changes] == [{"n": n} for n in range(1, 31)]


async def test_a_restart_costs_no_watcher_anything(server: PostgresServer, store: PostgresStore) -> None:
    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        await written(store, 1)
        server.stop()
        with pytest.raises(StorageUnavailable) as failed:
            await store.write([put("fs", n=2)], actor="ada")
        with pytest.raises(StorageUnavailable):
            await store.list()
        server.start()
        # The first one after it already works: broken connections are replaced on the way.
        revision = await store.write([put("fs", n=3)], actor="ada")
        seen = await read(batches, upto=revision)

    assert (failed.value.wire.http, failed.value.retryable) == (503, True)
    assert [change.after for batch in seen for change in batch.changes] == [{"n": 1}, {"n": 3}]


async def test_a_store_that_waits_opens_once_its_database_is_there(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.stop()
    with pytest.raises(StartRefused):
        async with open_postgres_store(url, Clock()):
            pass
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        opening = asyncio.ensure_future(
            stack.enter_async_context(open_postgres_store(url, Clock(), waits=True))
        )
        while not caplog.messages:
            await asyncio.sleep(0.01)
        early = opening.done()
        server.start()
        store = await opening
        await store.write([put("fs")], actor="ada")

    assert not early
    assert [message for message in caplog.messages if "waiting for the database" in message]


async def test_a_store_that_waits_refuses_what_waiting_does_not_cure(server: PostgresServer) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StartRefused, match="does not exist"):
            async with open_postgres_store(server.url("nowhere"), Clock(), waits=True):
                pass


async def test_idle_connections_that_were_dropped_are_noticed_by_no_one(
    server: PostgresServer, store: PostgresStore
) -> None:
    for n in range(5):
        server.execute(DROP_OTHERS)

        assert await store.write([put("fs", n=n)], actor="ada") == n + 1
        server.execute(DROP_OTHERS)
        assert (await store.list()).revision == n + 1


@pytest.mark.soak
async def test_sto_1_every_acknowledged_write_survives_a_kill_9_of_the_server(
    server: PostgresServer, url: str
) -> None:
    acknowledged: dict[str, int] = {}

    async def write(store: PostgresStore, name: str) -> None:
        n = 0
        while True:
            n += 1
            await store.write([put(f"{name}-{n}", n=n)], actor=name)
            acknowledged[f"{name}-{n}"] = n

    async def crash_during_writes(number: int) -> None:
        async with open_postgres_store(url, Clock()) as one, open_postgres_store(url, Clock()) as other:
            writers = [
                asyncio.ensure_future(write(store, f"w{number}-{n}"))
                for n, store in enumerate((one, other) * 2)
            ]
            wanted = len(acknowledged) + 20 + number
            while len(acknowledged) < wanted:
                await asyncio.sleep(0)
            server.crash()
            results = await asyncio.gather(*writers, return_exceptions=True)

            assert {type(result) for result in results} == {StorageUnavailable}
            server.start()
            records = {stored.id: stored for stored in (await one.list()).records}
            assert {name: records[name].body["n"] for name in acknowledged} == acknowledged

    for number in range(CRASHES):
        async with asyncio.timeout(DEADLINE_S):
            await crash_during_writes(number)
    async with open_postgres_store(url, Clock()) as store:
        log = [batch.revision for batch in events(await read_watch(store, 0, upto=store.revision))]
        assert log == list(range(1, store.revision + 1))


@pytest.fixture
def lone_role(server: PostgresServer, url: str) -> Iterator[str]:
    """The URL of a replica that can be cut off from the database, while others are not."""
    server.execute("CREATE ROLE lone LOGIN SUPERUSER")
    yield url.replace("postgres@", "lone@")
    server.execute("DROP ROLE lone")


def cut_off(server: PostgresServer) -> None:
    server.execute("ALTER ROLE lone NOLOGIN")
    server.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'lone'")


async def test_a_replica_that_was_cut_off_catches_up(
    server: PostgresServer, store: PostgresStore, lone_role: str
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres_store(lone_role, Clock()) as lone,
        lone.watch(0) as batches,
    ):
        assert await anext(batches) == ChangeBatch(revision=0)
        cut_off(server)
        for n in range(600):
            await store.write([put("fs", n=n)], actor="ada")
        with pytest.raises(StorageUnavailable):
            await lone.list()
        server.execute("ALTER ROLE lone LOGIN")
        seen = await read(batches, upto=600)

    assert [batch.revision for batch in seen] == list(range(1, 601))


async def test_wat_3_a_replica_that_missed_what_was_compacted_ends_its_watchers(
    server: PostgresServer, store: PostgresStore, lone_role: str
) -> None:
    async with asyncio.timeout(DEADLINE_S), open_postgres_store(lone_role, Clock()) as lone:
        async with lone.watch(0) as batches:
            assert await anext(batches) == ChangeBatch(revision=0)
            cut_off(server)
            for n in range(5):
                await store.write([put("fs", n=n)], actor="ada")
            await store.compact(keep_revisions=2, keep_ms=0)
            server.execute("ALTER ROLE lone LOGIN")
            with pytest.raises(Compacted):
                await anext(batches)

        assert (lone.revision, lone.epoch) == (5, store.epoch)
        async with lone.watch(3) as batches:
            assert [batch.revision for batch in await read(batches, upto=5)] == [4, 5]


async def test_a_database_restored_from_a_backup_ends_every_watcher(url: str, store: PostgresStore) -> None:
    """Same epoch, older revision: as `pg_restore` leaves it."""
    tables = ("head", "records", "changes")
    await store.write([put("fs", n=1)], actor="ada")
    with closing(psycopg.connect(url, autocommit=True)) as admin:
        for table in tables:
            admin.execute(f"CREATE TABLE backup_{table} AS TABLE {table}")
        for n in range(2, 5):
            await store.write([put("fs", n=n)], actor="ada")
        async with asyncio.timeout(DEADLINE_S), store.watch(4) as batches:
            assert await anext(batches) == ChangeBatch(revision=4)
            with admin.transaction():
                for table in tables:
                    admin.execute(f"DELETE FROM {table}")
                    admin.execute(f"INSERT INTO {table} SELECT * FROM backup_{table}")
            with pytest.raises(Compacted):
                await anext(batches)

    assert store.revision == 1
    assert await store.write([put("fs", n=9)], actor="ada") == 2


async def test_a_database_that_hangs_fails_every_request_in_time_and_is_not_taken_for_current(
    server: PostgresServer, url: str
) -> None:
    limits = StoreLimits(timeout_s=0.3, poll_s=0.3)
    with open_wire(f"{server.directory}/.s.PGSQL.5432") as wire:
        through = f"postgresql://postgres@{wire.address}{urlsplit(url).path}"
        async with asyncio.timeout(DEADLINE_S), open_postgres_store(through, Clock(), limits=limits) as store:
            at_first = store.is_current
            wire.hold()
            with pytest.raises(StorageUnavailable, match="does not respond"):
                await store.list()
            with pytest.raises(StorageUnavailable, match="may or may not be stored"):
                await store.write([put("fs", n=1)], actor="ada")
            await becomes_current(store, False)
            wire.release()
            await written(store, 2)
            await becomes_current(store, True)
            listed = [record.body for record in (await store.list()).records]

    assert at_first
    assert listed == [{"n": 2}]


async def test_shu_6_a_store_is_closed_in_time_though_its_database_hangs(
    server: PostgresServer, url: str
) -> None:
    limits = StoreLimits(close_s=0.2)
    with open_wire(f"{server.directory}/.s.PGSQL.5432") as wire:
        through = f"postgresql://postgres@{wire.address}{urlsplit(url).path}"
        async with asyncio.timeout(DEADLINE_S):
            async with open_postgres_store(through, Clock(), limits=limits) as store:
                wire.hold()
                waiting = [
                    asyncio.ensure_future(store.list()),
                    asyncio.ensure_future(store.write([put("fs", n=1)], actor="ada")),
                ]
            ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(one) for one in ended] == [StorageUnavailable, StorageUnavailable]
