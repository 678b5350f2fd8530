"""What is particular to the PostgreSQL store: how it starts, whom it waits for, and what its failures say."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, insert, text

from tests.contract.stores import DEADLINE_S, Clock, put
from tests.postgres import PostgresServer, own_server, shared_server
from toolgate.errors import Compacted, InvalidRecord, StartRefused, StorageFailed, StorageUnavailable
from toolgate.model.revisions import ChangeBatch, RecordChange
from toolgate.registry.database.statements import change_row, lock_head, store_head
from toolgate.registry.database.tables import CHANGES
from toolgate.registry.store.postgresql import PostgresStore, open_postgres_store

pytestmark = pytest.mark.anyio

CHANGE = RecordChange(
    revision=1, kind="server", id="x", operation="put", actor="ada", at_ms=0, before=None, after={}
)


@pytest.fixture
def url() -> str:
    return shared_server().create_schema()


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of someone else to the same tables."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with open_postgres_store(url, Clock()) as opened:
        yield opened


async def refusal(url: str) -> StartRefused:
    with pytest.raises(StartRefused) as refused:
        async with open_postgres_store(url, Clock()):
            pass
    return refused.value


# Starting


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("mysql://ada:canary@db/toolgate", "must begin with", id="another scheme"),
        pytest.param("postgresql+psycopg://ada:canary@db/x", "must begin with", id="SQLAlchemy's"),
        pytest.param(
            "postgresql://ada:canary%zz@db/x", "cannot parse the database URL", id="a stray percent sign"
        ),
        pytest.param(
            "postgresql://ada:canary@db/x?no_such=1", "cannot parse the database URL", id="unknown parameter"
        ),
        pytest.param("postgresql://ada:canary@127.0.0.1:1/x", "refused", id="connection refused"),
        pytest.param("postgresql://ada:canary@no-such.invalid/x", "no-such.invalid", id="no such host"),
    ],
)
async def test_sec_1_a_database_that_cannot_be_used_is_refused_without_its_password(
    url: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    refused = await refusal(url)
    assert message in str(refused)
    assert refused.hint
    notified: list[object] = [refused, refused.hint, refused.__cause__, caplog.text]
    assert "canary" not in "".join(map(repr, notified))


async def test_a_database_that_does_not_exist_is_refused(url: str) -> None:
    assert "no_such_database" in str(await refusal(shared_server().url("no_such_database")))


async def test_someone_elses_tables_are_refused_untouched(url: str, admin: psycopg.Connection[Any]) -> None:
    admin.execute("CREATE TABLE head (name text)")

    assert "schema_version" in str(await refusal(url))
    assert admin.execute("SELECT to_regclass('records')").fetchall() == [(None,)]


async def test_a_user_without_the_right_to_create_tables_gets_an_error(
    url: str, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("CREATE ROLE humble LOGIN")
    admin.execute("DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema() || ' TO humble'; END $$")

    refused = await refusal(url.replace("postgres@", "humble@"))
    assert "permission denied" in str(refused)
    assert "create tables" in refused.hint


async def test_a_database_that_takes_no_writes_is_refused() -> None:
    server = shared_server()
    url = server.create_database()
    name = url.partition("@/")[2].partition("?")[0]
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    assert "read-only" in str(await refusal(url))


async def test_damaged_records_are_refused_not_believed(url: str, admin: psycopg.Connection[Any]) -> None:
    async with open_postgres_store(url, Clock()) as store:
        await store.write([put("fs", n=1)], actor="ada")
        admin.execute('UPDATE records SET body = \'{"allowed_tools":["*"]}\'')
        with pytest.raises(StorageFailed, match="record server `fs`"):
            await store.list()

    assert "damaged" in str(await refusal(url))


async def test_sessions_are_named_bounded_and_durable(url: str, admin: psycopg.Connection[Any]) -> None:
    admin.execute("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        async with open_postgres_store(url, Clock()) as store:
            names = ("application_name", "synchronous_commit", "statement_timeout", "transaction_isolation")
            query = text("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))

            found = await store._transactions.read(lambda connection: connection.execute(query).one())
    finally:
        admin.execute("ALTER ROLE postgres RESET synchronous_commit")
    assert tuple(found) == ("toolgate", "on", "10s", "repeatable read")


# Whom it waits for


async def test_reads_wait_for_no_writer_and_writers_for_no_reader(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    await store.write([put("fs", n=1)], actor="ada")
    async with asyncio.timeout(DEADLINE_S):
        with admin.transaction():
            admin.execute("SELECT * FROM head FOR UPDATE")
            writing = asyncio.ensure_future(store.write([put("fs", n=2)], actor="ada"))
            listing = await store.list()

            assert (listing.revision, writing.done()) == (1, False)
        assert await writing == 2
        with admin.transaction():
            admin.execute("SELECT * FROM head").fetchall()
            assert await store.write([put("fs", n=3)], actor="ada") == 3


async def test_a_writer_that_waits_too_long_should_retry(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    await store._transactions.change(
        lambda connection: connection.execute(text("SET lock_timeout = '50ms'")), then=lambda _: None
    )
    with admin.transaction():
        admin.execute("SELECT * FROM head FOR UPDATE")
        with pytest.raises(StorageUnavailable, match="lock timeout"):
            await store.write([put("fs")], actor="ada")

    assert await store.write([put("fs")], actor="ada") == 1


# What its failures say


async def test_sto_3_a_full_disk_refuses_writes_serves_reads_and_heals(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    await store.write([put("fs", n=1)], actor="ada")
    admin.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$"
    )
    admin.execute("CREATE TRIGGER full_disk BEFORE INSERT ON changes EXECUTE FUNCTION full_disk()")

    with pytest.raises(StorageFailed, match="No space left") as refused:
        await store.write([put("fs", n=2)], actor="ada")
    assert refused.value.wire.http == 507
    assert (await store.list()).revision == 1
    admin.execute("DROP TRIGGER full_disk ON changes")
    assert await store.write([put("fs", n=2)], actor="ada") == 2


@pytest.mark.parametrize("record_id", ["x" * 65, "a\0b"])
async def test_what_the_database_cannot_hold_is_an_invalid_record(
    store: PostgresStore, record_id: str
) -> None:
    with pytest.raises(InvalidRecord):
        await store.write([put(record_id)], actor="ada")

    assert store.revision == 0


async def test_tables_that_are_gone_are_no_crash(
    store: PostgresStore, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("DELETE FROM head")
    with pytest.raises(StorageFailed):
        await store.list()
    admin.execute("DROP TABLE records")
    with pytest.raises(StorageUnavailable, match="records"):
        await store.get("server", "fs")


async def test_sto_4_a_damaged_log_line_ends_the_watchers_and_not_the_store(store: PostgresStore) -> None:
    row = {**change_row(CHANGE, 0), "checksum": 0}

    def spoil(connection: Connection) -> None:
        connection.execute(insert(CHANGES), row)
        store_head(connection, replace(lock_head(connection), revision=1))

    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        assert await anext(batches) == ChangeBatch(revision=0)
        await store._transactions.change(spoil, then=lambda _: None)
        with pytest.raises(Compacted):
            await anext(batches)

        assert store.revision == 1
        assert await store.write([put("fs")], actor="ada") == 2
        with pytest.raises(StorageFailed, match="change 1 of server `x`"):
            await store.history("server", "x")


# A server of its own, to be ill-treated


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_server() as started:
        yield started


async def test_sto_2_a_server_without_fsync_is_refused(server: PostgresServer) -> None:
    url = server.create_database()
    server.configure(fsync="off")
    try:
        refused = await refusal(url)
    finally:
        server.configure(fsync="on")

    assert "fsync" in str(refused)


@pytest.mark.parametrize("interruption", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_sto_2_a_commit_without_confirmation_says_that_its_outcome_is_unknown(
    server: PostgresServer, interruption: str
) -> None:
    """The commit waits for a standby that never answers, until someone loses patience."""
    async with open_postgres_store(server.create_database(), Clock()) as store:
        server.configure(synchronous_standby_names="missing")
        try:
            writing = asyncio.ensure_future(store.write([put("fs")], actor="ada"))
            waiting = f"SELECT {interruption}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            async with asyncio.timeout(DEADLINE_S):
                while not await asyncio.to_thread(server.execute, waiting):
                    pass
                with pytest.raises(StorageUnavailable, match="may or may not be stored") as failed:
                    await writing
        finally:
            server.configure(synchronous_standby_names="")

        assert "read the record again" in failed.value.hint
        assert await store.write([put("fs", n=1)], actor="ada") == 2
        assert store.revision == 2
