"""The store over SQL tables, on any engine. One suite in `tests/contract/` runs against each engine.

Every governed record is `(kind, id) -> body` at a revision. There is one global revision, which rises by one
with each transaction. An acknowledged write is durable. The batches of a watch are ordered, unique, atomic,
reliable, resumable and bookmarked; a watch that cannot keep that promise ends with an error. The data next to
the records has no revisions and is not part of an export.

All watches share one ring of the newest batches, and each has a cursor. A watcher replays the log page by
page up to the revision at its start, gets its bookmark, and is live. A live watcher whose next batch has left
the ring reads too slowly: it ends with WatchLagged and is never buffered without bound. Revisions have no
gaps, so the next batch is always `cursor + 1`: between log and ring there is no gap and no duplicate.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from toolgate.errors import Compacted, WatchLagged
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.approvals.sql import Approvals
from toolgate.registry.database import statements
from toolgate.registry.database.statements import StoreHead
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.store import (
    DEFAULT_STORE_LIMITS,
    KEEP_LOG_MS,
    KEEP_LOG_REVISIONS,
    WATCH_BUFFER,
    StoreLimits,
    side_tables,
)
from toolgate.registry.store.export import ExportProgress, ExportSummary, write_export

ReadLog = Callable[[int, int], Awaitable[Sequence[ChangeBatch]]]
"""Reads the batches with `after < revision <= upto` that the log still has, in order."""
ReadDigest = Callable[[int], Awaitable[str]]
"""Reads the digest of the log up to a revision; empty if unknown."""
PAGE: Final = 256  # batches read at once for a replay: few are large, and `CHANGES_AT_ONCE` holds, too
REPLAYS: Final = 2  # concurrent page reads; others reach the database in between


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
        self.epoch = head.epoch
        """The identity of the history: another epoch is another history, whatever its revisions."""
        self._hub = WatchHub(self._read_log, self._read_digest, start=head, buffer=limits.watch_buffer)
        shared = (transactions, self._read_clock_ms)
        self.reports = side_tables.Reports(*shared)
        self.catalog = side_tables.Catalog(transactions, lambda _: clock_ms())
        self.pinned = side_tables.PinnedDefinitions(*shared)
        self.invocations = Invocations(*shared, limits.queue)
        self.approvals = Approvals(*shared, limits.approvals)
        self.spending = side_tables.QuotaLedger(*shared)
        self.ended_sessions = side_tables.EndedSessions(*shared, limits.max_ended_sessions)

    @property
    def revision(self) -> int:
        return self._hub.revision

    @property
    def digest(self) -> str:
        """The digest of the log up to `revision`. Histories that diverge have different digests from then
        on."""
        return self._hub.digest

    @property
    def is_current(self) -> bool:
        """Whether `revision` is the newest. False while other processes may write without notice."""
        return True

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        """Like `commit`. Returns only the revision."""
        return (await self.commit(writes, actor=actor, if_store_revision=if_store_revision)).revision

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        """Commit all of `writes` as one revision, or none. Returns the batch.

        The response to the writer is made from the batch: a second read may see a later write.

        Raises Conflict if an `if_revision` is stale, NotFound if a delete finds nothing, StorageFailed if the
        write could not be made durable, and StorageUnavailable if the database does not respond: its message
        says whether the write may be stored. Equal bodies change nothing: the batch is empty, at the current
        revision. `if_store_revision` is for decisions that depend on other records: Conflict if anything was
        committed since.
        """
        commit = partial(statements.commit_writes, writes=writes, if_store_revision=if_store_revision)
        work = partial(commit, actor=actor, at_ms=self._clock_ms())
        return await self._transactions.change(work, then=self._on_committed)

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        work = partial(statements.read_record, kind=kind, record_id=record_id)
        return await self._transactions.read(work, is_single=True)

    async def list(self, kind: Kind | None = None) -> RecordList:
        """Return all records (of a kind) at one revision, sorted by kind and id."""
        return await self._transactions.read(partial(statements.read_listing, kind=kind), is_single=True)

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        """Return the changes of a record that the log still has, newest first."""
        work = partial(statements.read_history, kind=kind, record_id=record_id, limit=limit)
        return await self._transactions.read(work)

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Iterate over the batches after `since`: replayed from the log, then live.

        Entering raises Compacted if the log does not reach back to `since`, does not reach `since`, or has
        another digest there: the watcher followed another history and must list again. The iterator raises
        WatchLagged if its reader falls too far behind, and Compacted if the log was cut or the database
        replaced. After the replay comes one bookmark, a batch without changes, at the newest delivered
        revision.
        """
        return self._hub.watch(since, digest)

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        """Delete old changes from the log. Returns the oldest revision that a watch can still begin at."""
        cutoff_ms = self._clock_ms() - keep_ms
        work = partial(statements.compact_log, keep_revisions=keep_revisions, cutoff_ms=cutoff_ms)
        return await self._transactions.change(work, then=self._hub.on_compacted)

    async def export(self, path: Path) -> ExportSummary:
        """Write a snapshot of everything to the file `path`; see `export`."""
        return await self._transactions.read(partial(export_tables, path=path), is_long=True)

    async def aclose(self) -> None:
        """Accept no more work and end the watchers. Idempotent. The opener of the database closes it."""
        self._transactions.is_closed = True
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
        return await self._transactions.read(partial(statements.read_batches, after=after, upto=upto))

    async def _read_digest(self, revision: int) -> str:
        work = partial(statements.read_digest, revision=revision)
        return await self._transactions.read(work, is_single=True)


def export_tables(
    connection: Connection, path: Path, progress: ExportProgress | None = None
) -> ExportSummary:
    listing, head = statements.read_listing(connection), statements.read_head(connection)
    return write_export(path, listing, head.compacted, statements.read_all_changes(connection), progress)


class WatchHub:
    """Passes committed batches to watchers. For the event loop only."""

    revision: int
    compacted: int
    digest: str

    def __init__(
        self, read_log: ReadLog, read_digest: ReadDigest, *, start: StoreHead, buffer: int = WATCH_BUFFER
    ) -> None:
        self._read_log = read_log
        self._read_digest = read_digest
        self._buffer = buffer
        self._ring: dict[int, ChangeBatch] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._replays = asyncio.Semaphore(REPLAYS)
        self.restart(start)

    def publish(self, batch: ChangeBatch) -> None:
        """Make a committed batch visible. Invariant: each revision once, in order."""
        assert batch.revision == self.revision + 1, (batch.revision, self.revision)
        self.revision = batch.revision
        self.digest = batch.digest
        self._ring[batch.revision] = batch
        self._ring.pop(batch.revision - self._buffer, None)
        self._wake()

    def on_compacted(self, compacted: int) -> None:
        """Note that the log was cut: no watch can begin before `compacted`."""
        self.compacted = max(self.compacted, compacted)

    def restart(self, start: StoreHead) -> None:
        """Move to another position of an unknown history: every watcher must list again."""
        self.revision = start.revision
        self.compacted = start.compacted
        self.digest = start.digest
        self.generation = object()
        """A watcher of an earlier generation cannot resume."""
        self._ring.clear()
        self._wake()

    def close(self) -> None:
        """End every watcher. Each can resume at its cursor."""
        self._is_closed = True
        self._wake()

    @asynccontextmanager
    async def watch(self, since: int, digest: str = "") -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        watcher = _Watcher(self, since)
        if since < self.compacted:
            raise _compacted(since)
        if since > self.revision:
            raise Compacted(f"revision {since} is ahead of this registry, which is at {self.revision}")
        if not await self.has(since, digest):
            raise Compacted(f"this registry has another history at revision {since}")
        yield watcher

    async def has(self, revision: int, digest: str) -> bool:
        """Whether this history has `revision` with this digest. An empty digest is not compared."""
        if revision > self.revision:
            return False
        if not digest:
            return True
        if revision == self.revision:
            return digest == self.digest
        batch = self._ring.get(revision)
        return digest == (batch.digest if batch is not None else await self._read_digest(revision))

    async def read(self, cursor: int, *, generation: object, is_live: bool) -> Sequence[ChangeBatch]:
        """Wait for at least one batch after `cursor`. Returns none after the hub was closed."""
        if not await self.wait_for_revision(cursor + 1, generation):
            return ()
        if (batch := self._ring.get(cursor + 1)) is not None:
            return (batch,)
        if self._is_closed:
            return ()
        if is_live:
            raise WatchLagged(f"the watcher fell more than {self._buffer} batches behind")
        async with self._replays:
            page = await self._read_log(cursor, min(cursor + PAGE, self.revision))
        if not page or page[0].revision != cursor + 1 or generation is not self.generation:
            raise _compacted(cursor)
        return page

    async def wait_for_revision(self, revision: int, generation: object) -> bool:
        """Wait until `revision` is committed. Returns False if the hub is closed before."""
        while generation is self.generation and self.revision < revision:
            if self._is_closed:
                return False
            await self._changed.wait()
        if generation is not self.generation:
            raise Compacted("the registry was replaced, or advanced for too long without this process")
        return True

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class _Watcher(AsyncIterator[ChangeBatch]):
    """Replays up to the revision at its start, yields one bookmark there, then is live."""

    def __init__(self, hub: WatchHub, since: int) -> None:
        self._hub = hub
        self._generation = hub.generation
        self._cursor = since
        self._bookmark: ChangeBatch | None = ChangeBatch(revision=hub.revision, digest=hub.digest)
        self._page: list[ChangeBatch] = []

    async def __anext__(self) -> ChangeBatch:
        if self._bookmark is not None and self._cursor == self._bookmark.revision:
            if not await self._hub.wait_for_revision(self._cursor, self._generation):
                raise StopAsyncIteration
            bookmark, self._bookmark = self._bookmark, None
            return bookmark
        if not self._page:
            is_live = self._bookmark is None
            page = await self._hub.read(self._cursor, generation=self._generation, is_live=is_live)
            self._page = list(reversed(page))
            if not self._page:
                raise StopAsyncIteration
        batch = self._page.pop()
        self._cursor = batch.revision
        return batch


def _compacted(since: int) -> Compacted:
    return Compacted(f"the change log no longer reaches back to revision {since}")
