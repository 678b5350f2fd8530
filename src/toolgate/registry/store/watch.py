"""Watching, for all stores: one ring of the newest batches, and watchers that each hold only a cursor.

Up to the revision it began at, a watcher may read the log, page by page; then it gets its bookmark and
is live. A live watcher whose next batch has left the ring has read too slowly, and is ended with
WatchLagged rather than buffered without bound. Since revisions have no holes, the next batch is always
`cursor + 1`: between log and ring there can be no gap and no duplicate.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from toolgate.errors import Compacted, WatchLagged
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.store.contract import WATCH_BUFFER

ReadLog = Callable[[int, int], Awaitable[Sequence[ChangeBatch]]]
"""The batches with `after < revision <= upto`, in order, as far as the log still has them."""
ReadDigest = Callable[[int], Awaitable[str]]
"""The digest of the log up to a revision; empty where it is not known."""

PAGE: Final = 256
REPLAYS: Final = 2
"""Pages read at once. However many come back together, others get at the database in between."""


class LogStart(NamedTuple):
    """Where a store stands."""

    revision: int = 0
    compacted: int = 0
    digest: str = ""


_EMPTY: Final = LogStart()


class WatchHub:
    """Hands committed batches to watchers. Used from the event loop only."""

    def __init__(
        self,
        read_log: ReadLog,
        read_digest: ReadDigest,
        *,
        start: LogStart = _EMPTY,
        buffer: int = WATCH_BUFFER,
    ) -> None:
        self.revision = start.revision
        self.compacted = start.compacted
        self.digest = start.digest
        """Of the log up to `revision`."""
        self._read_log = read_log
        self._read_digest = read_digest
        self._buffer = buffer
        self._ring: dict[int, ChangeBatch] = {}
        self._news = asyncio.Event()
        self.era = object()
        """Another one after each `restart`: a watcher of an earlier era has nothing to resume from."""
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
        """The log was cut: nobody can watch from before `compacted` any more."""
        self.compacted = max(self.compacted, compacted)

    def restart(self, start: LogStart) -> None:
        """The store stands elsewhere, and what lies between is not known: every watcher must list again."""
        self.revision = start.revision
        self.compacted = start.compacted
        self.digest = start.digest
        self.era = object()
        self._ring.clear()
        self._wake()

    def close(self) -> None:
        """End every watcher; what it did not read by now it can resume from."""
        self._is_closed = True
        self._wake()

    @asynccontextmanager
    async def watch(self, since: int, digest: str = "") -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        """Batches after `since`; see `Store.watch`."""
        watcher = _Watcher(self, since)
        if since < self.compacted:
            raise _compacted(since)
        if since > self.revision:
            raise Compacted(f"revision {since} is ahead of this registry, which is at {self.revision}")
        if not await self.has(since, digest):
            raise Compacted(f"this registry has another history at revision {since}")
        yield watcher

    async def has(self, revision: int, digest: str) -> bool:
        """Whether `revision` was committed, by the history of `digest`; an empty one is not compared."""
        if revision > self.revision:
            return False
        if not digest:
            return True
        if revision == self.revision:
            return digest == self.digest
        batch = self._ring.get(revision)
        return digest == (batch.digest if batch is not None else await self._read_digest(revision))

    async def read(self, cursor: int, *, era: object, is_live: bool) -> Sequence[ChangeBatch]:
        """At least one batch after `cursor`, waiting for it; none at all once the hub is closed."""
        if not await self.reached(cursor + 1, era):
            return ()
        if (batch := self._ring.get(cursor + 1)) is not None:
            return (batch,)
        if self._is_closed:
            return ()
        if is_live:
            raise WatchLagged(f"the watcher fell more than {self._buffer} batches behind")
        async with self._replays:
            page = await self._read_log(cursor, min(cursor + PAGE, self.revision))
        if not page or page[0].revision != cursor + 1 or era is not self.era:
            raise _compacted(cursor)
        return page

    async def reached(self, revision: int, era: object) -> bool:
        """Wait until `revision` is committed; False when the hub is closed before."""
        while era is self.era and self.revision < revision:
            if self._is_closed:
                return False
            await self._news.wait()
        if era is not self.era:
            raise Compacted("the registry was replaced, or went on for long without this process")
        return True

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class _Watcher(AsyncIterator[ChangeBatch]):
    """Replay up to the revision of its start, one bookmark there, then live."""

    def __init__(self, hub: WatchHub, since: int) -> None:
        self._hub = hub
        self._era = hub.era
        self._cursor = since
        self._bookmark: ChangeBatch | None = ChangeBatch(revision=hub.revision, digest=hub.digest)
        self._page: list[ChangeBatch] = []

    async def __anext__(self) -> ChangeBatch:
        if self._bookmark is not None and self._cursor == self._bookmark.revision:
            if not await self._hub.reached(self._cursor, self._era):
                raise StopAsyncIteration
            bookmark, self._bookmark = self._bookmark, None
            return bookmark
        if not self._page:
            is_live = self._bookmark is None
            page = await self._hub.read(self._cursor, era=self._era, is_live=is_live)
            self._page = list(reversed(page))
            if not self._page:
                raise StopAsyncIteration
        batch = self._page.pop()
        self._cursor = batch.revision
        return batch


def _compacted(since: int) -> Compacted:
    return Compacted(f"the change log no longer reaches back to revision {since}")
