"""The store over SQL tables, whatever the engine: work goes to threads, its news come back in order."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from toolgate.model.packages import CatalogRow
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.approvals.sql import SqlApprovals
from toolgate.registry.database.change_count import ChangeCounter
from toolgate.registry.database.statements import (
    commit_writes,
    compact_log,
    read_all_changes,
    read_batches,
    read_history,
    read_listing,
    read_record,
)
from toolgate.registry.database.tables import StoreHead, read_digest, read_head
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.invocations.sql import SqlInvocations
from toolgate.registry.quotas.sql import SqlQuotaLedger
from toolgate.registry.records.transaction import RecordKey
from toolgate.registry.store.catalog import (
    RowSource,
    check_rows,
    read_made_from,
    read_rows,
    remove_rows,
    replace_rows,
)
from toolgate.registry.store.contract import KEEP_LOG_MS, KEEP_LOG_REVISIONS, drop_too_large
from toolgate.registry.store.export import ExportContents, ExportProgress, ExportSummary, write_export
from toolgate.registry.store.side_tables import (
    SqlEndedSessions,
    forget_pinned,
    forget_reports,
    read_definition_times,
    read_definitions,
    read_pinned,
    read_pinned_digests,
    read_reports,
    store_definitions,
    store_pinned,
    store_report,
)
from toolgate.registry.store.watch import LogStart, WatchHub


class SqlStore:
    """A store over `transactions`, which stands at `head` now."""

    def __init__(self, transactions: Transactions, head: StoreHead, *, clock_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self._epoch = head.epoch
        self._hub = WatchHub(self._read_log, self._read_digest, start=log_start_at(head))
        self.reports = SqlReports(transactions)
        self.catalog = SqlCatalog(transactions, clock_ms)
        self.pinned = SqlPinned(transactions)
        self.invocations = SqlInvocations(transactions, self._read_clock_ms)
        self.approvals = SqlApprovals(transactions, self._read_clock_ms)
        self.spending = SqlQuotaLedger(transactions, self._read_clock_ms)
        self.ended_sessions = SqlEndedSessions(transactions, self._read_clock_ms)

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
        work = partial(
            commit_writes,
            writes=writes,
            actor=actor,
            at_ms=self._clock_ms(),
            if_store_revision=if_store_revision,
        )
        return await self._transactions.change(work, then=self._on_committed)

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        key = RecordKey(kind, record_id)
        return await self._transactions.read(partial(read_record, key=key), is_single=True)

    async def list(self, kind: Kind | None = None) -> RecordList:
        return await self._transactions.read(partial(read_listing, kind=kind), is_single=True)

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        return await self._transactions.read(
            partial(read_history, key=RecordKey(kind, record_id), limit=limit)
        )

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        return self._hub.watch(since, digest)

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        cutoff_ms = self._clock_ms() - keep_ms
        work = partial(compact_log, keep_revisions=keep_revisions, cutoff_ms=cutoff_ms)
        return await self._transactions.change(work, then=self._hub.on_compacted)

    async def export(self, path: Path) -> ExportSummary:
        return await self._transactions.read(partial(export_tables, path=path), is_long=True)

    async def aclose(self) -> None:
        """Take no more work and end the watchers; idempotent. Whoever opened the database closes it."""
        self._transactions.close()
        self._hub.close()
        self.reports.count.close()
        self.catalog.count.close()
        self.invocations.close()

    def _read_clock_ms(self, _connection: Connection) -> int:
        """What leases, approvals and budgets are measured by: a clock that all who share the tables go by."""
        return self._clock_ms()

    def _on_committed(self, batch: ChangeBatch) -> None:
        if batch.changes:
            self._hub.publish(batch)

    async def _read_log(self, after: int, upto: int) -> Sequence[ChangeBatch]:
        return await self._transactions.read(partial(read_batches, after=after, upto=upto))

    async def _read_digest(self, revision: int) -> str:
        return await self._transactions.read(partial(read_digest, revision=revision), is_single=True)


def log_start_at(head: StoreHead) -> LogStart:
    """Where watchers of a store at `head` begin."""
    return LogStart(revision=head.revision, compacted=head.compacted, digest=head.digest)


class SqlReports:
    """Reports in the tables beside the records."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.count = ChangeCounter()

    async def save_report(self, report: NodeReport) -> None:
        await self._change(partial(store_report, report=report))

    async def save_definitions(self, *definitions: Definitions) -> None:
        await self._change(partial(store_definitions, definitions=definitions))

    async def list_reports(self) -> Sequence[NodeReport]:
        return await self._transactions.read(read_reports, is_single=True)

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        return await self._transactions.read(partial(read_definitions, server_ids=server_ids))

    async def definition_times(self) -> Mapping[str, int]:
        return await self._transactions.read(read_definition_times)

    async def forget(self, *, before_ms: int) -> None:
        await self._change(partial(forget_reports, before_ms=before_ms))

    async def changed(self, seen: int) -> int:
        return await self.count.changed(seen)

    async def _change(self, work: Callable[[Connection], bool]) -> None:
        await self._transactions.change(work, then=self._on_committed, topic="reports")

    def _on_committed(self, is_news: bool) -> None:  # noqa: FBT001 (a callback)
        if is_news:
            self.count.increment()


class SqlCatalog:
    """The catalog in the tables beside the records."""

    def __init__(self, transactions: Transactions, clock_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self.count = ChangeCounter()

    async def replace(self, package_id: str, rows: Sequence[CatalogRow], *, made_from: str) -> bool:
        check_rows(package_id, rows)
        source = RowSource(package_id=package_id, made_from=made_from, at_ms=self._clock_ms())
        return await self._change(partial(replace_rows, source=source, rows=rows))

    async def remove(self, package_id: str) -> bool:
        return await self._change(partial(remove_rows, package_id=package_id))

    async def rows(self, package_id: str | None = None) -> Sequence[CatalogRow]:
        return await self._transactions.read(partial(read_rows, package_id=package_id))

    async def made_from(self) -> dict[str, str]:
        return await self._transactions.read(read_made_from)

    async def changed(self, seen: int) -> int:
        return await self.count.changed(seen)

    async def _change(self, work: Callable[[Connection], bool]) -> bool:
        return await self._transactions.change(work, then=self._on_committed, topic="catalog")

    def _on_committed(self, is_news: bool) -> None:  # noqa: FBT001 (a callback)
        if is_news:
            self.count.increment()


class SqlPinned:
    """The definitions that pins name, in a table of their own."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        if kept := drop_too_large(definitions):
            await self._change(partial(store_pinned, definitions=kept))

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        return await self._transactions.read(partial(read_pinned, digests=digests))

    async def digests(self) -> frozenset[str]:
        return await self._transactions.read(read_pinned_digests)

    async def forget(self, digests: Collection[str]) -> None:
        if digests:
            await self._change(partial(forget_pinned, digests=digests))

    async def _change(self, work: Callable[[Connection], None]) -> None:
        await self._transactions.change(work)


def export_tables(
    connection: Connection, path: Path, progress: ExportProgress | None = None
) -> ExportSummary:
    """Everything in the tables, into the new file `path`."""
    listing, head = read_listing(connection), read_head(connection)
    contents = ExportContents(listing=listing, compacted=head.compacted, changes=read_all_changes(connection))
    return write_export(path, contents, progress)
