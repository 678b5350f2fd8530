"""The store over SQL tables, whatever the engine. One suite in `tests/contract/` runs against each engine.

Everything governed is `(kind, id) -> body` at a revision. There is one global revision, one higher with each
transaction. An acknowledged write is durable. The batches of a watch are ordered, unique, atomic, reliable,
resumable and bookmarked; a watch that cannot keep that promise ends with an error. What is stored next to the
records has no revisions and is no part of an export, and all control plane replicas on one database see the
same.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.approvals.sql import Approvals
from toolgate.registry.database.rows import StoreHead, read_digest, read_head
from toolgate.registry.database.statements import (
    commit_writes,
    compact_log,
    read_all_changes,
    read_batches,
    read_history,
    read_listing,
    read_record,
)
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.quotas.sql import QuotaLedger
from toolgate.registry.records.transaction import RecordKey
from toolgate.registry.store.contract import (
    DEFAULT_STORE_LIMITS,
    KEEP_LOG_MS,
    KEEP_LOG_REVISIONS,
    StoreLimits,
)
from toolgate.registry.store.export import ExportProgress, ExportSummary, write_export
from toolgate.registry.store.side_tables import Catalog, PinnedDefinitions, SqlEndedSessions, SqlReports
from toolgate.registry.store.watch import WatchHub


class Store:
    """A revisioned store over `transactions`. An engine subclasses it."""

    def __init__(
        self,
        transactions: Transactions,
        head: StoreHead,
        *,
        clock_ms: Callable[[], int],
        limits: StoreLimits = DEFAULT_STORE_LIMITS,
    ) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self._epoch = head.epoch
        self._hub = WatchHub(self._read_log, self._read_digest, start=head, buffer=limits.watch_buffer)
        self.reports = SqlReports(transactions)
        self.catalog = Catalog(transactions, clock_ms)
        self.pinned = PinnedDefinitions(transactions)
        self.invocations = Invocations(transactions, self._read_clock_ms, limits.queue)
        self.approvals = Approvals(transactions, self._read_clock_ms, limits.approvals)
        self.spending = QuotaLedger(transactions, self._read_clock_ms)
        self.ended_sessions = SqlEndedSessions(
            transactions, self._read_clock_ms, max_ended=limits.max_ended_sessions
        )

    @property
    def epoch(self) -> str:
        """The identity of the history: another epoch is another history, whatever its revisions."""
        return self._epoch

    @property
    def revision(self) -> int:
        """The newest committed revision."""
        return self._hub.revision

    @property
    def digest(self) -> str:
        """The digest of the log up to `revision`. Histories that diverge have different ones from then on."""
        return self._hub.digest

    @property
    def is_current(self) -> bool:
        """Whether `revision` is the newest. False while other processes may write unnoticed."""
        return True

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        """As `commit`. Returns the revision alone."""
        return (await self.commit(writes, actor=actor, if_store_revision=if_store_revision)).revision

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        """Commit all of `writes` as one revision, or none. Returns the batch.

        A response to the writer is made from the batch: a second read may see a later write.

        Raises Conflict if an `if_revision` is stale, NotFound if a delete finds nothing, StorageFailed if the
        write could not be made durable, and StorageUnavailable if the database does not answer: its message
        says whether the write may have been stored. Equal bodies change nothing: the batch is empty, at the
        current revision. `if_store_revision` is for decisions that depend on other records: Conflict if
        anything was committed since.
        """
        work = partial(
            commit_writes,
            writes=writes,
            actor=actor,
            at_ms=self._clock_ms(),
            if_store_revision=if_store_revision,
        )
        return await self._transactions.change(work, then=self._on_committed)

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        """Return the record, or None."""
        key = RecordKey(kind, record_id)
        return await self._transactions.read(partial(read_record, key=key), is_single=True)

    async def list(self, kind: Kind | None = None) -> RecordList:
        """Return all records (of a kind) at one revision, sorted by kind and id."""
        return await self._transactions.read(partial(read_listing, kind=kind), is_single=True)

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        """Return the changes of a record that the log still has, newest first."""
        return await self._transactions.read(
            partial(read_history, key=RecordKey(kind, record_id), limit=limit)
        )

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Iterate over the batches after `since`: replayed from the log, then live.

        Entering raises Compacted if the log does not reach back to `since`, does not reach `since` yet, or
        has another digest there: the watcher followed another history and must list again. The iterator
        raises WatchLagged if its reader falls too far behind, and Compacted if the log was cut or the
        database replaced. After the replay comes one bookmark, a batch without changes, at the newest
        revision delivered.
        """
        return self._hub.watch(since, digest)

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        """Delete old changes from the log. Returns the oldest revision that a watch can still begin at."""
        cutoff_ms = self._clock_ms() - keep_ms
        work = partial(compact_log, keep_revisions=keep_revisions, cutoff_ms=cutoff_ms)
        return await self._transactions.change(work, then=self._hub.on_compacted)

    async def export(self, path: Path) -> ExportSummary:
        """Write a snapshot of everything into the file `path`; see `export`."""
        return await self._transactions.read(partial(export_tables, path=path), is_long=True)

    async def aclose(self) -> None:
        """Take no more work and end the watchers. Idempotent. The opener of the database closes it."""
        self._transactions.close()
        self._hub.close()
        self.reports.count.close()
        self.catalog.count.close()
        self.invocations.close()

    def _read_clock_ms(self, _connection: Connection) -> int:
        """Read the clock of leases, approvals and quotas: all replicas on one database share it."""
        return self._clock_ms()

    def _on_committed(self, batch: ChangeBatch) -> None:
        if batch.changes:
            self._hub.publish(batch)

    async def _read_log(self, after: int, upto: int) -> Sequence[ChangeBatch]:
        return await self._transactions.read(partial(read_batches, after=after, upto=upto))

    async def _read_digest(self, revision: int) -> str:
        return await self._transactions.read(partial(read_digest, revision=revision), is_single=True)


def export_tables(
    connection: Connection, path: Path, progress: ExportProgress | None = None
) -> ExportSummary:
    """Write everything in the tables into the file `path`."""
    listing, head = read_listing(connection), read_head(connection)
    return write_export(path, listing, head.compacted, read_all_changes(connection), progress)
