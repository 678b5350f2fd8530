"""What every store does with what nodes report."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.contract.stores import (
    DEADLINE_S,
    DURABLE_STORES,
    STORES,
    Clock,
    OpenStore,
    delete,
    open_postgres,
    put,
)
from toolgate.errors import StorageFailed
from toolgate.model.reports import Definitions, NodeReport, ServerReport
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

REPORT = NodeReport(
    node_id="node-1",
    url="http://10.0.0.1:8080",
    version="0.2.0",
    epoch="e",
    revision=7,
    is_degraded=True,
    at_ms=1_000,
    servers=(
        ServerReport(server_id="fs", state="connected", list_state="ready", tools=3, definitions="abc"),
        ServerReport(server_id="git", state="down", last_error="exit 1: é", restarts=2),
    ),
)
DEFINITIONS = Definitions(
    server_id="fs",
    digest="abc",
    tools=(b'{"name": "read",  "x-vendor": 1e400}', b'{"name":"caf\xc3\xa9"}'),
    quarantined=MappingProxyType({"bad": "no schema"}),
    at_ms=1_000,
)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, Clock()) as opened:
        yield opened


async def test_a_report_is_read_back_whole_and_the_newest_word_wins(store: Store) -> None:
    newer = NodeReport(node_id="node-1", revision=8, at_ms=2_000)
    await store.reports.save_report(NodeReport(node_id="node-2"))
    await store.reports.save_report(REPORT)

    assert list(await store.reports.list_reports()) == [REPORT, NodeReport(node_id="node-2")]
    await store.reports.save_report(newer)
    assert list(await store.reports.list_reports()) == [newer, NodeReport(node_id="node-2")]


async def test_definitions_are_read_back_byte_for_byte(store: Store) -> None:
    await store.reports.save_definitions(Definitions(server_id="Z", digest="z"))
    await store.reports.save_definitions(Definitions(server_id="fs", digest="old"))
    await store.reports.save_definitions(DEFINITIONS)

    assert list(await store.reports.list_definitions()) == [
        Definitions(server_id="Z", digest="z"),
        DEFINITIONS,
    ]


async def test_definitions_are_saved_together_and_read_of_some_servers_alone(store: Store) -> None:
    older = Definitions(server_id="Z", digest="z", at_ms=5)
    await store.reports.save_definitions(older, DEFINITIONS)

    assert list(await store.reports.list_definitions(["fs", "nowhere"])) == [DEFINITIONS]
    assert list(await store.reports.list_definitions([])) == []
    assert await store.reports.definition_times() == {"Z": 5, "fs": DEFINITIONS.at_ms}


async def test_reports_have_no_revision_and_no_place_in_history(store: Store) -> None:
    await store.reports.save_report(REPORT)
    await store.reports.save_definitions(DEFINITIONS)

    assert (store.revision, (await store.list()).records) == (0, ())


async def test_old_reports_and_definitions_of_no_server_are_forgotten(store: Store) -> None:
    await store.write([put("fs"), put("gone"), put("task-only", kind="task")], actor="ada")
    await store.write([delete("gone")], actor="ada")
    for at_ms in (999, 1_000, 1_001):
        await store.reports.save_report(NodeReport(node_id=f"node-{at_ms}", at_ms=at_ms))
    for server_id in ("fs", "gone", "task-only"):
        await store.reports.save_definitions(Definitions(server_id=server_id, digest="d"))
    await store.reports.forget(before_ms=1_000)

    assert [report.at_ms for report in await store.reports.list_reports()] == [1_000, 1_001]
    assert [found.server_id for found in await store.reports.list_definitions()] == ["fs"]


async def test_who_waits_hears_of_each_change_and_of_none_that_was_none(store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S):
        seen = 0
        for change in (
            store.reports.save_report(REPORT),
            store.reports.save_definitions(DEFINITIONS),
            store.reports.forget(before_ms=5_000),
        ):
            waiting = asyncio.ensure_future(store.reports.changed(seen))
            await change
            count = await waiting
            assert count > seen
            seen = count

        assert await store.reports.changed(0) >= 3


async def test_a_change_between_reading_and_waiting_is_not_missed(store: Store) -> None:
    await store.reports.save_report(REPORT)

    async with asyncio.timeout(DEADLINE_S):
        assert await store.reports.changed(0) > 0


async def test_closing_the_store_ends_the_waiting(store: Store) -> None:
    waiting = asyncio.ensure_future(store.reports.changed(1_000))
    await asyncio.sleep(0)
    await store.aclose()

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StorageFailed):
            await waiting


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_reports_survive_a_reopening(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path, Clock()) as store:
        await store.reports.save_report(REPORT)
        await store.reports.save_definitions(DEFINITIONS)
    async with open_store(tmp_path, Clock()) as store:
        assert list(await store.reports.list_reports()) == [REPORT]
        assert list(await store.reports.list_definitions()) == [DEFINITIONS]


async def test_every_replica_sees_and_hears_the_same_reports(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres(tmp_path, Clock(), StoreLimits(poll_s=3_600.0)) as one,
        open_postgres(tmp_path, Clock(), StoreLimits(poll_s=3_600.0)) as other,
    ):
        # Past what it heard when it began to listen:
        seen = await other.reports.changed(0)
        waiting = asyncio.ensure_future(other.reports.changed(seen))
        await one.reports.save_report(REPORT)
        await waiting

        assert list(await other.reports.list_reports()) == [REPORT]


async def test_a_replica_that_hears_nothing_finds_new_reports_by_itself(
    tmp_path: Path,
) -> None:
    """Some connection poolers drop notifications."""
    limits = StoreLimits(poll_s=0.05)
    async with (
        asyncio.timeout(DEADLINE_S),
        open_postgres(tmp_path, Clock(), limits, channel="silence") as one,
        open_postgres(tmp_path, Clock(), limits, channel="silence") as other,
        other.watch(0) as batches,
    ):
        seen = await other.reports.changed(0)
        while not await other.reports.list_reports():
            waiting = asyncio.ensure_future(other.reports.changed(seen))
            await one.reports.save_report(REPORT)
            seen = await waiting
        await one.write([put("fs")], actor="ada")

        assert [(await anext(batches)).revision for _ in range(2)] == [0, 1]


async def test_a_new_node_may_report_to_two_replicas_at_once(tmp_path: Path) -> None:
    async with open_postgres(tmp_path, Clock()) as one, open_postgres(tmp_path, Clock()) as other:
        for n in range(20):
            report = NodeReport(node_id=f"node-{n}")
            await asyncio.gather(one.reports.save_report(report), other.reports.save_report(report))

        assert len(await one.reports.list_reports()) == 20
