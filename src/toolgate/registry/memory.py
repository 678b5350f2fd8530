"""A store without a disk: for tests, and for trying things out. It keeps every promise but durability."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import uuid4

from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.database.change_count import ChangeCounter
from toolgate.registry.memory_approvals import MemoryApprovals
from toolgate.registry.memory_invocations import MemoryInvocations
from toolgate.registry.memory_spending import MemorySpending
from toolgate.registry.records.transaction import (
    RecordKey,
    chain_digest,
    check_store_revision,
    plan_transaction,
    record_after,
    start_digest,
)
from toolgate.registry.store.catalog import MemoryCatalog
from toolgate.registry.store.contract import (
    KEEP_LOG_MS,
    KEEP_LOG_REVISIONS,
    MemoryEndedSessions,
    MemoryPinned,
)
from toolgate.registry.store.export import ExportContents, ExportSummary, write_export
from toolgate.registry.store.watch import LogStart, WatchHub


class MemoryStore:
    """Records in a dict, the log in a list. No method suspends before it is done, so none can interleave."""

    def __init__(self, clock_ms: Callable[[], int], *, epoch: str | None = None) -> None:
        self._epoch = epoch or uuid4().hex
        self._clock_ms = clock_ms
        self._records: dict[RecordKey, StoredRecord] = {}
        self._log: list[ChangeBatch] = []
        self._hub = WatchHub(
            self._read_log, self._read_digest, start=LogStart(digest=start_digest(self._epoch))
        )
        self._digest_before_log = self._hub.digest
        self.reports = MemoryReports(self._records)
        self.catalog = MemoryCatalog()
        self.pinned = MemoryPinned()
        self.invocations = MemoryInvocations(clock_ms)
        self.approvals = MemoryApprovals(clock_ms)
        self.spending = MemorySpending(clock_ms)
        self.ended_sessions = MemoryEndedSessions(clock_ms)

    @property
    def epoch(self) -> str:
        return self._epoch

    @property
    def revision(self) -> int:
        return self._hub.revision

    @property
    def digest(self) -> str:
        return self._hub.digest

    @property
    def is_current(self) -> bool:
        return True

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        return (await self.commit(writes, actor=actor, if_store_revision=if_store_revision)).revision

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        check_store_revision(self.revision, if_store_revision)
        changes = plan_transaction(
            writes, self._records, revision=self.revision + 1, actor=actor, at_ms=self._clock_ms()
        )
        if not changes:
            return ChangeBatch(revision=self.revision, digest=self.digest)
        revision = self.revision + 1
        digest = chain_digest(self.digest, revision, changes)
        batch = ChangeBatch(revision=revision, changes=changes, digest=digest)
        for change in changes:
            self._apply(change)
        self._log.append(batch)
        self._hub.publish(batch)
        return batch

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        return self._records.get(RecordKey(kind, record_id))

    async def list(self, kind: Kind | None = None) -> RecordList:
        records = tuple(self._records[key] for key in sorted(self._records) if kind in {None, key.kind})
        return RecordList(epoch=self._epoch, revision=self.revision, digest=self.digest, records=records)

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        newest_first = (change for batch in reversed(self._log) for change in batch.changes)
        found = [change for change in newest_first if (change.kind, change.id) == (kind, record_id)]
        return found[:limit]

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        return self._hub.watch(since, digest)

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        cutoff_ms = self._clock_ms() - keep_ms
        is_old = [
            batch.revision <= self.revision - keep_revisions and batch.changes[0].at_ms <= cutoff_ms
            for batch in self._log
        ]
        # Only a prefix may go: a clock that was set back leaves old-looking lines after young ones.
        forgotten = [*is_old, False].index(False)
        if forgotten:
            self._digest_before_log = self._log[forgotten - 1].digest
        del self._log[:forgotten]
        self._hub.on_compacted(self._hub.compacted + forgotten)
        return self._hub.compacted

    async def export(self, path: Path) -> ExportSummary:
        changes = (change for batch in self._log for change in batch.changes)
        listing = await self.list()
        return write_export(
            path, ExportContents(listing=listing, compacted=self._hub.compacted, changes=changes)
        )

    async def aclose(self) -> None:
        self._hub.close()
        self.reports.close()
        self.catalog.close()
        self.invocations.close()

    def _apply(self, change: RecordChange) -> None:
        key = RecordKey(change.kind, change.id)
        stored = record_after(change)
        if stored is None:
            del self._records[key]
        else:
            self._records[key] = stored

    async def _read_log(self, after: int, upto: int) -> Sequence[ChangeBatch]:
        start = self._hub.compacted
        return self._log[max(0, after - start) : max(0, upto - start)]

    async def _read_digest(self, revision: int) -> str:
        position = revision - self._hub.compacted
        return self._log[position - 1].digest if position else self._digest_before_log


class MemoryReports:
    """Reports in two dicts."""

    def __init__(self, records: Mapping[RecordKey, StoredRecord]) -> None:
        self._records = records
        self._reports: dict[str, NodeReport] = {}
        self._definitions: dict[str, Definitions] = {}
        self._count = ChangeCounter()

    async def save_report(self, report: NodeReport) -> None:
        self._reports[report.node_id] = report
        self._count.increment()

    async def save_definitions(self, *definitions: Definitions) -> None:
        self._definitions |= {one.server_id: one for one in definitions}
        self._count.increment()

    async def list_reports(self) -> Sequence[NodeReport]:
        return [report for _, report in sorted(self._reports.items())]

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        return [
            definitions
            for server_id, definitions in sorted(self._definitions.items())
            if server_ids is None or server_id in server_ids
        ]

    async def definition_times(self) -> Mapping[str, int]:
        return {server_id: one.at_ms for server_id, one in self._definitions.items()}

    async def forget(self, *, before_ms: int) -> None:
        old = [node_id for node_id, report in self._reports.items() if report.at_ms < before_ms]
        orphans = [one for one in self._definitions if RecordKey("server", one) not in self._records]
        for node_id in old:
            del self._reports[node_id]
        for server_id in orphans:
            del self._definitions[server_id]
        if old or orphans:
            self._count.increment()

    async def changed(self, seen: int) -> int:
        return await self._count.changed(seen)

    def close(self) -> None:
        """End those who wait."""
        self._count.close()
