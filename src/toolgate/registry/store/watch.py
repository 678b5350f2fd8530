"""Watches: one ring of the newest batches, and watchers that each hold a cursor.

A watcher replays the log page by page up to the revision it began at, gets its bookmark, and is live. A live
watcher whose next batch has left the ring reads too slowly: it ends with WatchLagged and is never buffered
without bound. Revisions have no holes, so the next batch is always `cursor + 1`: between log and ring there
is no gap and no duplicate.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from toolgate.errors import Compacted, WatchLagged
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.database.rows import StoreHead
from toolgate.registry.store.contract import WATCH_BUFFER

ReadLog = Callable[[int, int], Awaitable[Sequence[ChangeBatch]]]
"""Reads the batches with `after < revision <= upto` that the log still has, in order."""
ReadDigest = Callable[[int], Awaitable[str]]
"""Reads the digest of the log up to a revision; empty if it is not known."""

PAGE: Final = 256
REPLAYS: Final = 2
"""Pages read at once. However many watchers return together, others reach the database in between."""


class WatchHub:
    """Hands committed batches to watchers. Used from the event loop only."""

    def __init__(
        self,
        read_log: ReadLog,
        read_digest: ReadDigest,
        *,
        start: StoreHead,
        buffer: int = WATCH_BUFFER,
    ) -> None:
        self.revision = start.revision
        self.compacted = start.compacted
        self.digest = start.digest
        self._read_log = read_log
        self._read_digest = read_digest
        self._buffer = buffer
        self._ring: dict[int, ChangeBatch] = {}
        self._changed = asyncio.Event()
        self.generation = object()
        """Replaced by each `restart`: a watcher of an earlier generation cannot resume."""
        self._is_closed = False
        self._replays = asyncio.Semaphore(REPLAYS)

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
        self._ring.clear()
        self._wake()

    def close(self) -> None:
        """End every watcher. Each can resume at its cursor."""
        self._is_closed = True
        self._wake()

    @asynccontextmanager
    async def watch(self, since: int, digest: str = "") -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        """See `Store.watch`."""
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
        """Wait for at least one batch after `cursor`. Returns none once the hub is closed."""
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
    """Replays up to the revision of its start, yields one bookmark there, then is live."""

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
