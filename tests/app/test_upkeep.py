"""What happens without any request."""

import asyncio

import pytest

from tests.contract.approval_samples import question
from tests.contract.invocation_samples import SUCCESS, begin, found, make
from tests.contract.stores import DEADLINE_S, Clock
from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryStore
from toolgate.app.control_plane import open_upkeep
from toolgate.audit.events import ApprovalRecorded
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import StorageFailed
from toolgate.model.reports import NodeReport
from toolgate.registry.approvals import EXPIRES_MS
from toolgate.registry.invocations import LEASE_MS
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio


async def test_the_invocation_of_a_lost_node_ends_though_no_node_requests_work() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    await begin(store.invocations, "a")
    clock.now_ms += LEASE_MS + 1
    async with asyncio.timeout(DEADLINE_S), open_upkeep(store, Metrics(), AuditLog(MemorySink())):
        while (await found(store.invocations, "a")).state != "crashed":
            await asyncio.sleep(0)


async def test_what_is_too_old_is_dropped() -> None:
    store = MemoryStore(Clock())
    await begin(store.invocations, "a")
    await store.invocations.report("a", 1, ending=SUCCESS)
    await store.reports.save_report(NodeReport(node_id="n1", at_ms=1))
    async with asyncio.timeout(DEADLINE_S), open_upkeep(store, Metrics(), AuditLog(MemorySink())):
        while await store.invocations.list() or await store.reports.list_reports():
            await asyncio.sleep(0)


async def test_those_that_wait_are_counted() -> None:
    store, metrics = MemoryStore(Clock()), Metrics()
    for invocation_id in ("a", "b"):
        await make(store.invocations, invocation_id)
    async with asyncio.timeout(DEADLINE_S), open_upkeep(store, metrics, AuditLog(MemorySink())):
        while b"\ntoolgate_invocations_queued 2.0\n" not in metrics.render():
            await asyncio.sleep(0)


async def test_pending_approvals_are_counted_and_expired_ones_audited() -> None:
    clock = Clock()
    store, metrics, sink = MemoryStore(clock), Metrics(), MemorySink()
    audit = AuditLog(sink)
    await store.approvals.request(question(), new_id="a")
    async with asyncio.timeout(DEADLINE_S):
        async with open_upkeep(store, metrics, audit):
            while b"\ntoolgate_approvals_pending 1.0\n" not in metrics.render():
                await asyncio.sleep(0)
        clock.now_ms += EXPIRES_MS
        async with open_upkeep(store, metrics, audit):
            while not sink.events:
                audit.flush()
                await asyncio.sleep(0)

    ((_, lines),) = sink.events
    assert isinstance(lines, ApprovalRecorded)
    assert (lines.approval_id, lines.state, lines.decided_by) == ("a", "expired", "")


async def test_upkeep_that_fails_is_logged_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, tries = MemoryStore(Clock()), asyncio.Semaphore(0)

    async def fail(_node_id: str, *, limit: int) -> None:
        assert limit == 0
        tries.release()
        raise StorageFailed("the disk is full")

    monkeypatch.setattr(store.invocations, "claim", fail)
    upkeep = open_upkeep(store, Metrics(), AuditLog(MemorySink()), leases_every_s=0)
    async with asyncio.timeout(DEADLINE_S), upkeep:
        for _ in range(3):
            await tries.acquire()

    assert [record.getMessage() for record in caplog.records] == [
        "the expiry of leases failed; retrying: the disk is full"
    ]
