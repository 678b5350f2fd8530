"""Databases of other releases: an older one is migrated, a newer one is not touched, on both engines."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine, inspect

from tests.contract.stores import DEADLINE_S, Clock, execute, put, read_watch
from tests.postgres import shared_server
from toolgate.errors import Compacted, StartRefused
from toolgate.model.revisions import RecordChange, RecordList, StoredRecord
from toolgate.registry.database.statements import create_tables, migrate
from toolgate.registry.database.tables import SCHEMA_VERSION
from toolgate.registry.store.engines import open_store
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

RELEASE_0_1 = (Path(__file__).parent / "release_0_1.sql").read_text()
LISTING = RecordList(
    epoch="",
    revision=3,
    records=(
        StoredRecord(
            kind="server",
            id="fs",
            body={"server_id": "fs", "n": 2},
            revision=2,
            updated_at_ms=1000,
            actor="bob",
        ),
    ),
)
DELETED = RecordChange(
    revision=3,
    kind="task",
    id="review",
    operation="delete",
    actor="bob",
    at_ms=1000,
    before={"task_id": "review"},
    after=None,
)


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    path = tmp_path / "registry.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.executescript(RELEASE_0_1)
    return path


@pytest.fixture
def old_database() -> str:
    url = shared_server().create_schema()
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(RELEASE_0_1)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest) -> str | Path:
    target: str | Path = request.getfixturevalue("old_file" if request.param == "sqlite" else "old_database")
    return target


async def check_release_0_1(store: Store) -> None:
    listing = await store.list()
    assert (listing.revision, listing.records) == (LISTING.revision, LISTING.records)
    assert await store.history("task", "review") == [DELETED]
    assert await store.reports.list_reports() == []


async def test_sto_8_a_database_of_the_first_release_is_migrated_on_start(old: str | Path) -> None:
    for _ in range(2):
        async with open_store(old, Clock()) as store:
            await check_release_0_1(store)
    async with open_store(old, Clock()) as store:
        assert await store.write([put("new")], actor="ada") == 4


async def test_wat_12_a_log_without_digests_begins_a_chain_where_it_is(old: str | Path) -> None:
    async with open_store(old, Clock()) as store:
        first = store.digest
        async with store.watch(3, first):
            pass
        with pytest.raises(Compacted):
            async with store.watch(3, "0" * 64):
                pass
        await store.write([put("new")], actor="ada")
    async with open_store(old, Clock()) as store:
        seen = await read_watch(store, 1, upto=4)

        assert [batch.digest for batch in seen] == ["", first, store.digest, store.digest]
        assert "" != first != store.digest


async def test_wat_12_a_replica_of_the_release_before_may_write_without_a_digest(old: str | Path) -> None:
    async with open_store(old, Clock()) as store:
        await store.write([put("new")], actor="ada")
    forget_digests(old)
    async with asyncio.timeout(DEADLINE_S), open_store(old, Clock()) as store:
        unknown = store.digest
        async with store.watch(4, unknown) as batches:
            await anext(batches)
            committed = await store.commit([put("newer")], actor="ada")
            notified = await anext(batches)

        assert (unknown, notified.digest) == ("", committed.digest)
        assert committed.digest == store.digest != ""


def forget_digests(old: str | Path) -> None:
    """The rows that a replica of an earlier release does not write."""
    if isinstance(old, Path):
        execute(old, "DELETE FROM digests")
    else:
        with closing(psycopg.connect(old, autocommit=True)) as connection:
            connection.execute("DELETE FROM digests")


async def test_replicas_that_start_together_migrate_once(old_database: str) -> None:
    async def start() -> str:
        async with open_store(old_database, Clock()) as store:
            await check_release_0_1(store)
            return store.epoch

    assert len(set(await asyncio.gather(*(start() for _ in range(4))))) == 1


async def test_replicas_that_start_together_make_one_registry() -> None:
    url = shared_server().create_schema()

    async def start() -> str:
        async with open_store(url, Clock()) as store:
            return store.epoch

    assert len(set(await asyncio.gather(*(start() for _ in range(4))))) == 1


async def test_a_copy_of_the_old_file_is_kept_from_which_one_can_go_back(old_file: Path) -> None:
    before = dump(old_file)
    async with open_store(old_file, Clock()):
        pass

    copy = old_file.with_name(f"registry.db.before-{SCHEMA_VERSION}")
    assert (dump(copy), stat.S_IMODE(copy.stat().st_mode)) == (before, 0o600)
    assert dump(old_file) != before
    assert sorted(entry.name for entry in old_file.parent.iterdir()) == [
        "registry.db",
        copy.name,
        "registry.db.lock",
    ]


async def test_a_damaged_old_file_is_refused_and_stays_as_it_is(old_file: Path) -> None:
    execute(old_file, "UPDATE records SET body = '{}'")
    before = dump(old_file)

    with pytest.raises(StartRefused, match="damaged"):
        async with open_store(old_file, Clock()):
            pass
    assert dump(old_file) == before


async def test_a_database_that_cannot_be_migrated_stays_as_it_is(old_database: str) -> None:
    """A table of that name is there already, and not ours."""
    with closing(psycopg.connect(old_database, autocommit=True)) as connection:
        connection.execute("CREATE TABLE definitions (other text)")
        with pytest.raises(StartRefused, match="definitions"):
            async with open_store(old_database, Clock()):
                pass

        assert connection.execute("SELECT schema_version FROM head").fetchall() == [(1,)]
        assert connection.execute("SELECT to_regclass('reports')").fetchall() == [(None,)]


async def test_sto_8_a_newer_database_is_refused_untouched(old_database: str) -> None:
    with closing(psycopg.connect(old_database, autocommit=True)) as connection:
        connection.execute("UPDATE head SET schema_version = 99")
        row_and_its_writer = "SELECT *, xmin::text FROM head"
        before = connection.execute(row_and_its_writer).fetchall()
        with pytest.raises(StartRefused, match="newer Toolgate"):
            async with open_store(old_database, Clock()):
                pass

        assert connection.execute(row_and_its_writer).fetchall() == before
        assert connection.execute("SELECT to_regclass('reports')").fetchall() == [(None,)]


async def test_sto_9_what_a_crash_during_the_migration_left_does_not_stop_the_next_one(
    old_file: Path,
) -> None:
    before = dump(old_file)
    copy = old_file.with_name(f"registry.db.before-{SCHEMA_VERSION}")
    for leftover in (copy, old_file.with_name("registry.db.new"), old_file.with_name("registry.db.new-wal")):
        leftover.write_bytes(b"half of it")

    async with open_store(old_file, Clock()) as store:
        await check_release_0_1(store)
    assert dump(copy) == before


# Created and migrated schemas


def schemas(connection: Connection) -> dict[str, Any]:
    """All that can be known of the tables a connection sees."""
    found = inspect(connection)
    return {
        name: {
            "columns": [
                {**column, "type": str(column["type"].compile(connection.dialect))}
                for column in found.get_columns(name)
            ],
            "key": found.get_pk_constraint(name),
            "indexes": found.get_indexes(name),
            "unique": found.get_unique_constraints(name),
            "checks": found.get_check_constraints(name),
        }
        for name in sorted(found.get_table_names())
    }


def make_empty_sqlite(directory: Path) -> str:
    return f"sqlite:///{directory / os.urandom(4).hex()}.db"


def make_empty_postgres(_directory: Path) -> str:
    return shared_server().create_schema().replace("postgresql:", "postgresql+psycopg:")


@pytest.mark.parametrize("make_empty", [make_empty_sqlite, make_empty_postgres])
def test_created_and_migrated_tables_are_the_same(make_empty: Callable[[Path], str], tmp_path: Path) -> None:
    def made_by(make: Callable[[Connection], None]) -> dict[str, Any]:
        engine = create_engine(make_empty(tmp_path))
        with engine.begin() as connection:
            make(connection)
            found = schemas(connection)
        engine.dispose()
        return found

    def migrate_release_0_1(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        (raw.executescript if isinstance(raw, sqlite3.Connection) else raw.execute)(RELEASE_0_1)
        migrate(connection, 1)

    def migrate_version_7(connection: Connection) -> None:
        create_tables(connection, epoch="e")
        for column in ("notices", "notice_ms", "notified_ms"):
            connection.exec_driver_sql(f"ALTER TABLE approvals DROP COLUMN {column}")
        for table in ("digests", "ended_sessions"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        migrate(connection, 7)

    created = made_by(lambda connection: create_tables(connection, epoch="e"))

    assert made_by(migrate_version_7) == created
    assert made_by(migrate_release_0_1) == created


def dump(path: Path) -> list[str]:
    def lines() -> Iterator[str]:
        with closing(sqlite3.connect(path)) as connection:
            yield from connection.iterdump()

    return list(lines())
