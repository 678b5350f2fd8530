"""The store over SQL tables, whatever the engine: work goes to threads, its news come back in order."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from toolgate.model.packages import CatalogRow
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import Batch, Change, Kind, Listing, Stored, Write
from toolgate.registry.catalog_rows import check_rows
from toolgate.registry.database.change_count import ChangeCount
from toolgate.registry.database.statements import (
    commit_writes,
    compact_log,
    read_all_changes,
    read_batches,
    read_history,
    read_listing,
    read_record,
)
from toolgate.registry.database.tables import Head, read_digest, read_head
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.pinned import keepable
from toolgate.registry.pinned_tables import forget_pinned, read_digests, read_pinned, store_pinned
from toolgate.registry.quotas.sql import SqlSpending
from toolgate.registry.records.transaction import RecordKey
from toolgate.registry.sql_approvals import SqlApprovals
from toolgate.registry.sql_ended_sessions import SqlEndedSessions
from toolgate.registry.sql_invocations import SqlInvocations
from toolgate.registry.store.catalog import RowSource, read_made_from, read_rows, remove_rows, replace_rows
from toolgate.registry.store.contract import KEEP_MS, KEEP_REVISIONS
from toolgate.registry.store.export import Contents, Exported, Progress, write_export
from toolgate.registry.store.side_tables import (
    forget_reports,
    read_definition_times,
    read_definitions,
    read_reports,
    store_definitions,
    store_report,
)
from toolgate.registry.store.watch import Start, WatchHub


class SqlStore:
    """A store over `transactions`, which stands at `head` now."""

    def __init__(self, transactions: Transactions, head: Head, *, clock_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self._epoch = head.epoch
        self._hub = WatchHub(self._read_log, self._read_digest, start=start_of(head))
        self.reports = SqlReports(transactions)
        self.catalog = SqlCatalog(transactions, clock_ms)
        self.pinned = SqlPinned(transactions)
        self.invocations = SqlInvocations(transactions, self._read_clock_ms)
        self.approvals = SqlApprovals(transactions, self._read_clock_ms)
        self.spending = SqlSpending(transactions, self._read_clock_ms)
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
        self, writes: Sequence[Write], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        return (await self.commit(writes, actor=actor, if_store_revision=if_store_revision)).revision

    async def commit(
        self, writes: Sequence[Write], *, actor: str, if_store_revision: int | None = None
    ) -> Batch:
        work = partial(
            commit_writes,
            writes=writes,
            actor=actor,
            at_ms=self._clock_ms(),
            if_store_revision=if_store_revision,
        )
        return await self._transactions.change(work, then=self._on_committed)

    async def get(self, kind: Kind, record_id: str) -> Stored | None:
        key = RecordKey(kind, record_id)
        return await self._transactions.read(partial(read_record, key=key), is_single=True)

    async def list(self, kind: Kind | None = None) -> Listing:
        return await self._transactions.read(partial(read_listing, kind=kind), is_single=True)

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[Change]:
        return await self._transactions.read(
            partial(read_history, key=RecordKey(kind, record_id), limit=limit)
        )

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        return self._hub.watch(since, digest)

    async def compact(self, *, keep_revisions: int = KEEP_REVISIONS, keep_ms: int = KEEP_MS) -> int:
        cutoff_ms = self._clock_ms() - keep_ms
        work = partial(compact_log, keep_revisions=keep_revisions, cutoff_ms=cutoff_ms)
        return await self._transactions.change(work, then=self._hub.on_compacted)

    async def export(self, path: Path) -> Exported:
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

    def _on_committed(self, batch: Batch) -> None:
        if batch.changes:
            self._hub.publish(batch)

    async def _read_log(self, after: int, upto: int) -> Sequence[Batch]:
        return await self._transactions.read(partial(read_batches, after=after, upto=upto))

    async def _read_digest(self, revision: int) -> str:
        return await self._transactions.read(partial(read_digest, revision=revision), is_single=True)


def start_of(head: Head) -> Start:
    """Where watchers of a store at `head` begin."""
    return Start(revision=head.revision, compacted=head.compacted, digest=head.digest)


class SqlReports:
    """Reports in the tables beside the records."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.count = ChangeCount()

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
            self.count.rise()


class SqlCatalog:
    """The catalog in the tables beside the records."""

    def __init__(self, transactions: Transactions, clock_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self.count = ChangeCount()

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
            self.count.rise()


class SqlPinned:
    """The definitions that pins name, in a table of their own."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        if kept := keepable(definitions):
            await self._change(partial(store_pinned, definitions=kept))

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        return await self._transactions.read(partial(read_pinned, digests=digests))

    async def digests(self) -> frozenset[str]:
        return await self._transactions.read(read_digests)

    async def forget(self, digests: Collection[str]) -> None:
        if digests:
            await self._change(partial(forget_pinned, digests=digests))

    async def _change(self, work: Callable[[Connection], None]) -> None:
        await self._transactions.change(work)


def export_tables(connection: Connection, path: Path, progress: Progress | None = None) -> Exported:
    """Everything in the tables, into the new file `path`."""
    listing, head = read_listing(connection), read_head(connection)
    contents = Contents(listing=listing, compacted=head.compacted, changes=read_all_changes(connection))
    return write_export(path, contents, progress)
