"""What every store does with the rows of the catalog."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.contract.stores import (
    DEADLINE_S,
    DURABLE_STORES,
    STORES,
    Clock,
    OpenStore,
    execute,
    open_postgres,
    open_sqlite,
    schema_url,
)
from toolgate.catalog.definitions import MAX_SCHEMA_BYTES
from toolgate.errors import InvalidRecord, StorageFailed
from toolgate.model.packages import ALL_TOOLS, CatalogRow
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

ROW = CatalogRow(
    package_id="excel-tools",
    tool_name="create_workbook",
    package_name="Excel 工具集",
    package_description="What spreadsheets need",
    category="数据",
    tags=("excel", "办公"),
    title="New workbook",
    description="创建新的 Excel 工作簿",
    input_schema=b'{"type": "object",  "x": 1e400, "type": "object"}',
    output_schema=b'{"b":1,"a":2}',
    annotations=b'{"readOnlyHint": true}',
    is_read_only=True,
    digest="d" * 64,
    tokens=40,
    schema_version="v2",
    source="manifest",
    updated_at_ms=1_000,
)
OTHER = CatalogRow(package_id="excel-tools", tool_name="Read", updated_at_ms=1_000)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, Clock()) as opened:
        yield opened


@pytest.mark.requirement("004-14")
async def test_rows_are_read_back_byte_for_byte_and_in_order(store: Store) -> None:
    placeholder = CatalogRow(package_id="a", tool_name=ALL_TOOLS, source="legacy")
    await store.catalog.replace("excel-tools", [ROW, OTHER], made_from="m1")
    await store.catalog.replace("a", [placeholder], made_from="m2")

    assert list(await store.catalog.rows()) == [placeholder, OTHER, ROW]
    assert list(await store.catalog.rows("excel-tools")) == [OTHER, ROW]
    assert list(await store.catalog.rows("no-such")) == []
    assert await store.catalog.made_from() == {"excel-tools": "m1", "a": "m2"}


@pytest.mark.parametrize(
    "schema",
    [
        rb'{"a": "\u0000"}',
        rb'{"a": "\ud800"}',
        b'{"a": 1e400}',
        b'{"a": 1' + b"0" * 10_000 + b"}",
        b"not JSON",
    ],
)
async def test_what_no_json_column_takes_is_kept_all_the_same(store: Store, schema: bytes) -> None:
    row = replace(ROW, input_schema=schema, description="a\0b", title="\0", tags=("\0",), category="\0")
    await store.catalog.replace("excel-tools", [row], made_from="m")

    assert list(await store.catalog.rows()) == [row]


async def test_a_row_that_says_the_same_keeps_its_time(store: Store) -> None:
    await store.catalog.replace("excel-tools", [ROW, OTHER], made_from="m1")
    later = [replace(ROW, updated_at_ms=2_000), replace(OTHER, title="new", updated_at_ms=2_000)]

    assert await store.catalog.replace("excel-tools", later, made_from="m2")
    assert list(await store.catalog.rows()) == [later[1], ROW]
    assert not await store.catalog.replace("excel-tools", [later[1], ROW], made_from="m3")
    assert await store.catalog.made_from() == {"excel-tools": "m3"}


async def test_replacing_leaves_nothing_of_what_was_before(store: Store) -> None:
    await store.catalog.replace("excel-tools", [ROW, OTHER], made_from="m1")

    assert await store.catalog.replace("excel-tools", [OTHER], made_from="m2")
    assert list(await store.catalog.rows()) == [OTHER]
    assert await store.catalog.replace("excel-tools", [], made_from="m3")
    assert list(await store.catalog.rows()) == []
    assert await store.catalog.made_from() == {"excel-tools": "m3"}


async def test_a_removed_package_is_forgotten(store: Store) -> None:
    await store.catalog.replace("excel-tools", [ROW], made_from="m")
    await store.catalog.replace("empty", [], made_from="m")

    assert await store.catalog.remove("excel-tools")
    assert await store.catalog.remove("empty")
    assert not await store.catalog.remove("empty")
    assert (list(await store.catalog.rows()), await store.catalog.made_from()) == ([], {})


@pytest.mark.requirement("004-16", "004-17")
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([ROW, ROW], id="a tool twice"),
        pytest.param([replace(ROW, package_id="other")], id="of another package"),
        pytest.param([replace(ROW, input_schema=b" " * (MAX_SCHEMA_BYTES + 1))], id="a schema too large"),
        pytest.param([replace(ROW, output_schema=b" " * (MAX_SCHEMA_BYTES + 1))], id="an output too large"),
    ],
)
async def test_rows_that_cannot_be_are_refused_and_the_store_works_on(
    store: Store, rows: list[CatalogRow]
) -> None:
    await store.catalog.replace("excel-tools", [OTHER], made_from="m")
    with pytest.raises(InvalidRecord):
        await store.catalog.replace("excel-tools", rows, made_from="bad")

    assert await store.catalog.made_from() == {"excel-tools": "m"}
    assert await store.catalog.replace("excel-tools", [ROW], made_from="m2")


async def test_the_catalog_has_no_revision(store: Store) -> None:
    await store.catalog.replace("excel-tools", [ROW], made_from="m")

    assert (store.revision, (await store.list()).records) == (0, ())


async def test_who_waits_hears_of_each_change_of_rows_and_of_no_other(store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S):
        seen = 0
        for change in (
            store.catalog.replace("excel-tools", [ROW], made_from="m"),
            store.catalog.replace("excel-tools", [OTHER], made_from="m"),
            store.catalog.remove("excel-tools"),
        ):
            waiting = asyncio.ensure_future(store.catalog.changed(seen))
            await change
            count = await waiting
            assert count > seen
            seen = count

        assert await store.catalog.changed(0) >= 3


async def test_closing_the_store_ends_the_waiting(store: Store) -> None:
    waiting = asyncio.ensure_future(store.catalog.changed(1_000))
    await asyncio.sleep(0)
    await store.aclose()

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StorageFailed):
            await waiting


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_the_catalog_survives_a_reopening(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path, Clock()) as store:
        await store.catalog.replace("excel-tools", [ROW], made_from="m")
    async with open_store(tmp_path, Clock()) as store:
        assert list(await store.catalog.rows()) == [ROW]
        assert await store.catalog.made_from() == {"excel-tools": "m"}


async def test_a_row_that_cannot_be_read_is_left_out_and_can_be_written_again(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, Clock()) as store:
        await store.catalog.replace("excel-tools", [ROW, OTHER], made_from="m")
    execute(tmp_path / "registry.db", "UPDATE tool_catalog SET body = x'c1' WHERE tool_name = 'Read'")
    async with open_sqlite(tmp_path, Clock()) as store:
        assert list(await store.catalog.rows()) == [ROW]
        assert await store.catalog.replace("excel-tools", [ROW, OTHER], made_from="m")
        assert list(await store.catalog.rows()) == [OTHER, ROW]


# What the databases themselves can be asked


@pytest.mark.requirement("004-18")
async def test_postgresql_finds_rows_by_tag_and_by_schema(tmp_path: Path) -> None:
    row = replace(ROW, input_schema=b'{"properties": {"filename": {"type": "string"}}}')
    async with open_postgres(tmp_path, Clock()) as store:
        await store.catalog.replace("excel-tools", [row, OTHER], made_from="m")
        query = """SELECT full_name, category, updated_at = to_timestamp(1) FROM tool_catalog
            WHERE tags @> ARRAY['办公'] AND input_schema @> '{"properties": {"filename": {}}}'"""
        with psycopg.connect(schema_url(tmp_path)) as connection:
            assert connection.execute(query).fetchall() == [("excel-tools.create_workbook", "数据", True)]
            indexes = connection.execute("SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%USING gin%'")
            assert {definition.split("USING ")[1] for (definition,) in indexes} == {
                "gin (tags)",
                "gin (input_schema jsonb_path_ops)",
            }


async def test_every_replica_sees_and_hears_the_same_catalog(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres(tmp_path, Clock(), StoreLimits(poll_s=3_600.0)) as one,
        open_postgres(tmp_path, Clock(), StoreLimits(poll_s=3_600.0)) as other,
    ):
        # Past what it heard when it began to listen:
        seen = await other.catalog.changed(0)
        waiting = asyncio.ensure_future(other.catalog.changed(seen))
        await one.catalog.replace("excel-tools", [ROW], made_from="m")
        await waiting

        assert list(await other.catalog.rows()) == [ROW]


async def test_a_replica_that_hears_nothing_finds_the_new_catalog_by_itself(
    tmp_path: Path,
) -> None:
    """Some connection poolers drop notifications."""
    limits = StoreLimits(poll_s=0.05)
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres(tmp_path, Clock(), limits, channel="silence") as one,
        open_postgres(tmp_path, Clock(), limits, channel="silence") as other,
    ):
        seen = await other.catalog.changed(0)
        await one.catalog.replace("excel-tools", [ROW], made_from="m")
        while not await other.catalog.rows():
            seen = await other.catalog.changed(seen)


async def test_replicas_that_write_the_same_package_at_once_leave_the_same_rows(tmp_path: Path) -> None:
    async with open_postgres(tmp_path, Clock()) as one, open_postgres(tmp_path, Clock()) as other:
        for n in range(20):
            rows = [replace(ROW, description=f"the {n}th"), OTHER]
            await asyncio.gather(
                *(store.catalog.replace("excel-tools", rows, made_from=f"m{n}") for store in (one, other))
            )

            assert list(await one.catalog.rows()) == [OTHER, rows[0]]
