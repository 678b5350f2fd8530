"""The changes of the registry as one principal may follow them, over whatever surface.

A watch tells what was changed and never what it is now: whoever wants to know reads the record, by the
rules of reading. Invariant: a revision that holds nothing for the principal is a bookmark to it, so that
whoever resumes from what it saw last misses nothing and repeats nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from toolgate.errors import SessionLimit
from toolgate.gateway.roles import reaches
from toolgate.model.principals import Principal
from toolgate.model.revisions import Batch, Kind

MAX_WATCHES: Final = 100
"""Open at once, of each principal."""
WATCHED: Final[tuple[Kind, ...]] = ("server", "task", "profile", "pin")
"""The kinds every reader of the registry may follow."""


def watchable_kinds(principal: Principal) -> frozenset[Kind]:
    """The kinds whose changes `principal` may be told of. Of a `secret` nobody is."""
    return frozenset((*WATCHED, "key") if reaches(principal.role, "admin") else WATCHED)


def narrow_batch(batch: Batch, kinds: Collection[Kind]) -> Batch:
    """What the batch says about `kinds`: a bookmark, where that is nothing."""
    return Batch(
        revision=batch.revision, changes=tuple(change for change in batch.changes if change.kind in kinds)
    )


class Watches:
    """Those that are open here, counted by principal; all end when this process does."""

    def __init__(self, most: int = MAX_WATCHES) -> None:
        self._most = most
        self._open: Counter[str] = Counter()
        self._ends: set[asyncio.Event] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def admit(self, principal: Principal) -> Iterator[asyncio.Event]:
        """Count one more watch for the length of the block. The event is set when it has to end.

        Raises SessionLimit for one too many.
        """
        if self._open[principal.id] >= self._most:
            raise SessionLimit(
                f"`{principal.id}` has {self._most} watches open, as many as it may",
                hint="close one of them, or share one among those who need it",
            )
        end = asyncio.Event()
        if self._is_closed:
            end.set()
        self._open[principal.id] += 1
        self._ends.add(end)
        try:
            yield end
        finally:
            self._ends.discard(end)
            self._open[principal.id] -= 1
            if not self._open[principal.id]:
                del self._open[principal.id]

    def close(self) -> None:
        """End them all, and those to come."""
        self._is_closed = True
        for end in tuple(self._ends):
            end.set()


class Heartbeat:
    """No batch came for as long as one may wait without a sign of life."""


async def beating(
    batches: AsyncIterator[Batch], end: asyncio.Event, *, every_s: float
) -> AsyncGenerator[Batch | Heartbeat, None]:
    """The batches until `end` is set, and a sign of life whenever there was none for `every_s`."""
    ending = asyncio.ensure_future(end.wait())
    reading: asyncio.Future[Batch] | None = None
    try:
        while not end.is_set():
            if reading is None:
                reading = asyncio.ensure_future(anext(batches))
            # Waited for, never cancelled for a heartbeat: an iterator need not survive that.
            await asyncio.wait((reading, ending), timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                try:
                    batch = reading.result()
                except StopAsyncIteration:
                    return
                finally:
                    reading = None
                yield batch
            elif not end.is_set():
                yield Heartbeat()
    finally:
        for task in (ending, reading):
            if task is not None and not task.done():
                task.cancel()
        await asyncio.gather(
            *(task for task in (ending, reading) if task is not None), return_exceptions=True
        )
