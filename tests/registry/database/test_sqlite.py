"""What is particular to the SQLite store: one owner, durability, damage, and a disk that fails."""

import asyncio
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.contract.stores import Clock, execute, put
from tests.scenarios.soak import rounds
from toolgate.errors import StartRefused, StorageFailed
from toolgate.model.revisions import RecordList
from toolgate.registry.database.sqlite import SqliteDatabase
from toolgate.registry.database.statements import CHANGES_AT_ONCE, read_batches
from toolgate.registry.store.engines import open_database, open_sqlite_store
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from pathlib import Path
from toolgate.model.revisions import RecordWrite
from toolgate.registry.store.engines import open_sqlite_store

async def main():
    async with open_sqlite_store(Path(sys.argv[1]), lambda: 0) as store:
        print("ready", flush=True)
        while True:
            n = store.revision + 1
            server = RecordWrite(kind="server", id=f"s{n % 7}", body={"n": n})
            writes = [server, RecordWrite(kind="task", id="t", body={"n": n})]
            print(await store.write(writes, actor="writer"), flush=True)

asyncio.run(main())
"""
"""Writes for ever, and prints each revision once it was acknowledged."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.db"


@contextmanager
def running_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def fill(path: Path, count: int = 30) -> RecordList:
    """A closed store with some records, as it lists them."""
    async with open_sqlite_store(path, Clock()) as store:
        for n in range(count):
            await store.write([put(f"s{n % 20}", n=n, text="x" * 200)], actor="ada")
        return await store.list()


async def opened_listing(path: Path) -> RecordList:
    async with open_sqlite_store(path, Clock()) as store:
        return await store.list()


def test_what_only_others_need_is_not_loaded() -> None:
    """Alembic, the driver of PostgreSQL and gRPC each take longer to load than the rest of a start."""
    code = "import sys, toolgate.registry.store.engines; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {"alembic", "psycopg", "grpc"} & set(loaded.stdout.split()) == set()


# One owner


async def test_sto_5_a_second_process_is_refused_at_once_and_takes_over_after_kill_9(path: Path) -> None:
    with running_writer(path) as writer:
        began_s = time.monotonic()
        with pytest.raises(StartRefused, match=rf"process \({writer.pid}\)"):
            await opened_listing(path)
        assert time.monotonic() - began_s < 30

        writer.kill()
        writer.wait(60)

    assert (await opened_listing(path)).revision >= 0


READER = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, timeout=0)
connection.execute("SELECT count(*) FROM tool_catalog").fetchone()
for _ in sys.stdin:
    print(*connection.execute("SELECT revision FROM head").fetchone(), flush=True)
"""
"""Prints the revision that it reads for each line it gets."""


async def test_another_program_reads_each_committed_revision_while_the_store_is_open(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        await store.write([put("fs")], actor="ada")
        reader = [sys.executable, "-c", READER, str(path)]
        with subprocess.Popen(
            reader, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            read = []
            for n in range(3):
                process.stdin.write("\n")
                read.append(process.stdout.readline())
                await store.write([put("fs", n=n)], actor="ada")
            process.stdin.close()

    assert (read, process.returncode) == (["1\n", "2\n", "3\n"], 0)


async def test_a_program_that_reads_for_long_does_not_stop_writes(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        await store.write([put("fs")], actor="ada")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM head").fetchone()
            for n in range(50):
                await store.write([put("fs", n=n, text="x" * 100_000)], actor="ada")
            read = reader.execute("SELECT revision FROM head").fetchone()

        assert (read, store.revision) == ((1,), 51)
    assert (await opened_listing(path)).revision == 51


async def test_a_program_that_takes_the_lock_fails_one_write_and_not_those_after_it(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        database = store._transactions.database
        # Another thread, as the moment in which the store has no lock is short.
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as foreign:

            def overtake() -> None:
                assert isinstance(database, SqliteDatabase)
                raw = database._connection.connection.driver_connection
                assert raw is not None
                raw.rollback()
                foreign.execute("BEGIN IMMEDIATE")

            await asyncio.wrap_future(store._transactions.writer.submit(overtake))
            with pytest.raises(StorageFailed, match="locked"):
                await store.write([put("fs")], actor="ada")
            foreign.execute("ROLLBACK")

        assert await store.write([put("fs")], actor="ada") == 1


async def test_a_foreign_program_cannot_write_behind_the_stores_back(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        await store.write([put("fs")], actor="ada")
        with (
            closing(sqlite3.connect(path, timeout=0)) as foreign,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            foreign.execute("DELETE FROM records")


async def test_fil_9_the_files_are_for_their_owner_only(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        await store.write([put("fs")], actor="ada")
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}

    assert modes == {
        "registry.db": 0o600,
        "registry.db-shm": 0o600,
        "registry.db-wal": 0o600,
        "registry.db.lock": 0o600,
    }
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_opening_that_is_cancelled_gives_the_file_back(path: Path) -> None:
    for turns in range(5):
        opening = asyncio.ensure_future(opened_listing(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])

    assert (await opened_listing(path)).records == ()


# Durability


@pytest.mark.parametrize("seed", range(4))
async def test_sto_1_every_acknowledged_write_survives_kill_9(path: Path, seed: int) -> None:
    with running_writer(path) as writer:
        assert writer.stdout is not None
        for _ in range(random.Random(seed).randint(1, 300)):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.wait(60)

    async with open_sqlite_store(path, Clock()) as store:
        listing = await store.list()
        task = await store.get("task", "t")
        history = await store.history("task", "t", limit=10_000)
    assert listing.revision >= max(acknowledged, default=0)
    assert task is not None
    assert (task.revision, task.body) == (listing.revision, {"n": listing.revision})
    assert [change.revision for change in history] == list(range(listing.revision, 0, -1))


async def test_a_crash_while_the_file_is_made_leaves_no_half_store(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("registry.db.new").write_bytes(b"half a store")

    assert (await opened_listing(path)).records == ()


# Files that are not as they should be


async def test_sto_8_a_newer_schema_is_refused_and_the_file_stays_as_it_is(path: Path) -> None:
    await fill(path)
    execute(path, "UPDATE head SET schema_version = 99")
    before = path.read_bytes()

    with pytest.raises(StartRefused, match="newer Toolgate"):
        await opened_listing(path)
    assert path.read_bytes() == before
    assert {entry.name for entry in path.parent.iterdir()} == {"registry.db", "registry.db.lock"}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a database at all" * 100, id="something else"),
        pytest.param(b"SQLite format 3\0", id="the first bytes only"),
    ],
)
async def test_a_file_that_is_no_registry_is_refused_untouched(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(StartRefused):
        await opened_listing(path)
    assert path.read_bytes() == content


async def test_someone_elses_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    execute(path, "CREATE TABLE accounts (name TEXT)")

    with pytest.raises(StartRefused, match="head"):
        await opened_listing(path)


async def test_a_log_left_by_a_registry_that_is_gone_is_not_replayed_into_a_new_one(path: Path) -> None:
    with running_writer(path) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
        writer.wait(60)
    path.unlink()

    with pytest.raises(StartRefused, match="a registry file that is missing"):
        await opened_listing(path)


async def test_a_directory_one_may_not_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StartRefused):
        await opened_listing(tmp_path / "file" / "registry.db")


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE records SET body = '{\"allowed_tools\":[\"*\"]}' WHERE id = 's3'", id="body"),
        pytest.param("UPDATE records SET id = 's99' WHERE id = 's3'", id="id"),
        pytest.param("UPDATE records SET kind = 'task' WHERE id = 's3'", id="kind"),
        pytest.param("UPDATE head SET revision = 7", id="revision"),
        pytest.param("DELETE FROM head", id="no head"),
        pytest.param("DROP TABLE records", id="no records"),
    ],
)
async def test_sto_4_a_changed_row_is_refused_not_believed(path: Path, statement: str) -> None:
    await fill(path)
    execute(path, statement)

    with pytest.raises(StartRefused, match="damaged"):
        await opened_listing(path)


async def test_sto_4_a_damaged_log_line_is_reported_when_it_is_read(path: Path) -> None:
    await fill(path)
    execute(path, "UPDATE changes SET after = '{}' WHERE revision = 4")

    async with open_sqlite_store(path, Clock()) as store:
        with pytest.raises(StorageFailed, match="change 4 of server `s3`"):
            await store.history("server", "s3")
        assert len((await store.list()).records) == 20
        assert await store.write([put("s3", n=0)], actor="ada") == 31


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_sto_4_bit_flips_and_truncations_never_show_a_registry_that_was_not(
    path: Path, seed: int
) -> None:
    listing = await fill(path)
    sound, rng = path.read_bytes(), random.Random(seed)

    for _ in range(rounds(suite=40, soak=400)):
        damaged = bytearray(sound)
        if rng.random() < 0.2:
            del damaged[rng.randrange(len(damaged)) :]
        for _ in range(rng.randint(1, 3) if damaged else 0):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found = await opened_listing(path)
        except StartRefused:
            continue
        finally:
            for leftover in (*path.parent.glob("*-wal"), *path.parent.glob("*-shm")):
                leftover.unlink()
        assert found == listing


async def test_sto_4_a_damaged_write_ahead_log_recovers_to_a_prefix(path: Path) -> None:
    with running_writer(path) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            writer.stdout.readline()
        writer.kill()
        writer.wait(60)
    wal = path.with_name("registry.db-wal")
    sound, log = path.read_bytes(), wal.read_bytes()

    for seed in range(10):
        damaged = bytearray(log)
        damaged[random.Random(seed).randrange(len(log))] ^= 1
        path.write_bytes(sound)
        wal.write_bytes(damaged)
        async with open_sqlite_store(path, Clock()) as store:
            task = await store.get("task", "t")
            recovered = {"n": task.revision} if task else {}
            assert (task and task.body, store.revision) == (recovered or None, recovered.get("n", 0))


# A disk that fails


async def limit_pages(store: Store, pages: int) -> None:
    """Make the file as large as it may get: SQLite then answers as for a full disk."""
    pragma = f"PRAGMA max_page_count = {pages}"
    await store._transactions.read(lambda connection: connection.exec_driver_sql(pragma).all())


async def test_sto_3_a_full_disk_refuses_writes_serves_reads_and_heals(path: Path) -> None:
    async with open_sqlite_store(path, Clock()) as store:
        await store.write([put("fs", n=1)], actor="ada")
        await limit_pages(store, 1)
        with pytest.raises(StorageFailed, match="full"):
            await store.write([put("big", text="x" * 100_000)], actor="ada")
        assert (store.revision, [stored.id for stored in (await store.list()).records]) == (1, ["fs"])

        await limit_pages(store, 1_000_000)
        assert await store.write([put("big", text="x" * 100_000)], actor="ada") == 2
    assert (await opened_listing(path)).revision == 2


FAILING = """
import asyncio, resource, sys
from pathlib import Path
from toolgate.errors import StorageFailed
from toolgate.model.revisions import RecordWrite
from toolgate.registry.store.engines import open_sqlite_store

async def attempt(store, n):
    try:
        body = {"n": n, "text": "x" * 5000}
        return await store.write([RecordWrite(kind="server", id="fs", body=body)], actor="ada")
    except StorageFailed as exc:
        return str(exc).split(":")[0]

async def main():
    async with open_sqlite_store(Path(sys.argv[1]), lambda: 0) as store:
        print(await attempt(store, 1))
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, unlimited[1]))
        print(await attempt(store, 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        print(await attempt(store, 3))
        print((await store.get("server", "fs")).body["n"])

asyncio.run(main())
"""
"""A store whose file cannot be written for a while: the kernel refuses each write with an error."""


async def test_sto_2_after_an_io_error_nothing_is_acknowledged_until_a_restart(path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", FAILING, str(path)], capture_output=True, text=True, check=True, timeout=60
    )

    assert process.stdout.splitlines() == [
        "1",
        "cannot write to the registry",
        "the registry is read-only after an error",
        "1",
    ]
    async with open_sqlite_store(path, Clock()) as store:
        assert await store.write([put("fs", n=4)], actor="ada") == store.revision


async def test_wat_7_a_long_log_is_read_in_pages_of_whole_transactions(tmp_path: Path) -> None:
    path, many = tmp_path / "registry.db", CHANGES_AT_ONCE + 1
    async with open_sqlite_store(path, Clock()) as store:
        for n, count in enumerate((many, 400, 600, 1)):
            await store.write([put(f"t{i}", n=n) for i in range(count)], actor="tester")
    with open_database(path) as database:
        pages = [
            [one.revision for one in database.read(partial(read_batches, after=after, upto=4))]
            for after in (0, 1, 3, 4)
        ]
    async with asyncio.timeout(60), open_sqlite_store(path, Clock()) as store, store.watch(0) as batches:
        replayed = [
            (batch.revision, len(batch.changes)) for batch in [await anext(batches) for _ in range(5)]
        ]

    assert pages == [[1], [2, 3], [4], []]
    assert replayed == [(1, many), (2, 400), (3, 600), (4, 1), (4, 0)]
