"""Control in memory, by the contract of `ControlConnection`: does what a test says, remembers what it saw."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from toolgate.errors import Compacted, ControlUnavailable, ToolgateError
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, RecordList
from toolgate.registry.replication.sync import HistoryPosition
from toolgate.registry.store.sql_store import Store

BOOKMARK_EVERY_S: Final = 5.0


class MemoryControl:
    """A store, behind a line that can be cut."""

    def __init__(self, store: Store) -> None:
        self.store = store
        """What it serves; another one is another epoch."""
        self.failure: ToolgateError | None = None
        """What every request fails with."""
        self.watch_failure: ToolgateError | None = None
        """What every attempt to watch fails with."""
        self.is_mute = False
        """Watches say nothing, not even bookmarks."""
        self.edit: Callable[[ChangeBatch], ChangeBatch] = lambda batch: batch
        """What becomes of a batch on its way."""
        self.delay_s = 0.0
        """How long a batch is on its way."""
        self.wanted: Sequence[str] = ()
        """Servers whose definitions it asks for, until it was told."""

        self.lists_s: list[float] = []
        self.polls_s: list[float] = []
        self.watches: list[tuple[float, int]] = []
        """When, and since which revision."""
        self.reports: list[tuple[NodeReport, tuple[Definitions, ...]]] = []
        self._open: set[_Watching] = set()

    async def list_records(self) -> RecordList:
        self.lists_s.append(_now_s())
        self._check()
        return await self.store.list()

    async def newest(self) -> HistoryPosition:
        self.polls_s.append(_now_s())
        self._check()
        return HistoryPosition(self.store.epoch, self.store.revision, self.store.digest)

    @asynccontextmanager
    async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        self.watches.append((_now_s(), since.revision))
        self._check()
        if self.watch_failure is not None:
            raise self.watch_failure
        if since.epoch != self.store.epoch:
            raise Compacted("this is another history")
        async with self.store.watch(since.revision, since.digest) as batches:
            watching = _Watching(self, batches, since.revision)
            self._open.add(watching)
            try:
                yield watching
            finally:
                self._open.discard(watching)

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        self._check()
        self.reports.append((report, tuple(definitions)))
        notified = {one.server_id for one in definitions}
        self.wanted = [one for one in self.wanted if one not in notified]
        return self.wanted

    def cut(self) -> None:
        """Break every watch that is open."""
        for watching in self._open:
            watching.break_off()

    def go(self, failure: ToolgateError | None = None) -> None:
        """Not there any more, until `come_back`."""
        self.failure = failure or ControlUnavailable("nothing listens there")
        self.cut()

    def come_back(self) -> None:
        self.failure = None

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


class _Watching(AsyncIterator[ChangeBatch]):
    def __init__(self, control: MemoryControl, batches: AsyncIterator[ChangeBatch], since: int) -> None:
        self._control = control
        self._batches = batches
        self._cursor = since
        self._is_cut = False
        self._patience: asyncio.Timeout | None = None

    def break_off(self) -> None:
        self._is_cut = True
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(_now_s())

    async def __anext__(self) -> ChangeBatch:
        batch = await self._next()
        while batch is None:  # nothing is known of a revision that is still to come
            batch = await self._next()
        if self._control.delay_s:
            await asyncio.sleep(self._control.delay_s)
        return self._control.edit(batch)

    async def _next(self) -> ChangeBatch | None:
        patience_s = None if self._control.is_mute else BOOKMARK_EVERY_S
        try:
            async with asyncio.timeout(0 if self._is_cut else patience_s) as self._patience:
                if self._control.is_mute:
                    await asyncio.Event().wait()
                batch = await anext(self._batches)
        except TimeoutError:
            if self._is_cut:
                raise ControlUnavailable("the connection was reset") from None
            return (
                ChangeBatch(revision=self._cursor) if self._cursor <= self._control.store.revision else None
            )
        finally:
            self._patience = None
        self._cursor = batch.revision
        return batch


def _now_s() -> float:
    return asyncio.get_running_loop().time()
