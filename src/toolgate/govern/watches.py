"""The changes of the registry as one principal may follow them, over whatever surface.

A watch tells what was changed and never what it is now: whoever wants to know reads the record, by the
rules of reading. Invariant: a revision that holds nothing for the principal is a bookmark to it, so that
whoever resumes from what it saw last misses nothing and repeats nothing.

Those who wait for runs of tasks and follow them: one look at the queue serves all of them.

However many there are, and however much happens to runs that nobody follows, the database is asked one thing
a few times a second.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from toolgate.errors import SessionLimit, ToolgateError
from toolgate.gateway.auth.identity import reaches
from toolgate.model.principals import Principal
from toolgate.model.revisions import ChangeBatch, Kind
from toolgate.registry.invocations.contract import InvocationProgress
from toolgate.registry.invocations.sql import Invocations

MAX_WATCHES: Final = 100
"""Open at once, of each principal."""
WATCHED_KINDS: Final[tuple[Kind, ...]] = ("server", "task", "profile", "pin", "chat_upstream")
"""The kinds every reader of the registry may follow."""

T = TypeVar("T")


def watchable_kinds(principal: Principal) -> frozenset[Kind]:
    """The kinds whose changes `principal` may be told of. Of a `secret` nobody is."""
    return frozenset((*WATCHED_KINDS, "key") if reaches(principal.role, "admin") else WATCHED_KINDS)


def filter_batch(batch: ChangeBatch, kinds: Collection[Kind]) -> ChangeBatch:
    """What the batch says about `kinds`: a bookmark, where that is nothing."""
    changes = tuple(change for change in batch.changes if change.kind in kinds)
    return ChangeBatch(revision=batch.revision, changes=changes, digest=batch.digest)


class RegistryWatch:
    """One that is open. It can be ended from outside, also while it waits."""

    __slots__ = ("_patience", "is_over", "reason")

    def __init__(self, *, is_over: bool) -> None:
        self.is_over = is_over
        self.reason: ToolgateError | None = None
        """Why it is over, where its reader has to know."""
        self._patience: asyncio.Timeout | None = None

    def end(self, reason: ToolgateError | None = None) -> None:
        """Have its reader told nothing more but the reason."""
        self.is_over, self.reason = True, self.reason or reason
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def next(self, batches: AsyncIterator[T], *, within_s: float) -> T | None:
        """The next batch; None where none comes within that time, or the watch is over.

        Nothing is lost when a wait is cut off: the cursor of a store's watch moves with what it returns, and
        so must that of any other iterator.
        """
        try:
            async with asyncio.timeout(within_s) as self._patience:
                batch = await anext(batches, None)
        except TimeoutError:
            return None
        finally:
            self._patience = None
        self.is_over |= batch is None
        return batch


class RegistryWatches:
    """Those that are open here, counted by principal; all end when this process does."""

    def __init__(self, most: int = MAX_WATCHES) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._open: set[RegistryWatch] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def admit(self, principal: Principal) -> Iterator[RegistryWatch]:
        """Count one more watch for the length of the block. Raises SessionLimit for one too many."""
        if self._held[principal.id] >= self._most:
            raise SessionLimit(
                f"`{principal.id}` has {self._most} watches open, as many as it may",
                hint="close one of them, or share one among those who need it",
            )
        watch = RegistryWatch(is_over=self._is_closed)
        self._held[principal.id] += 1
        self._open.add(watch)
        try:
            yield watch
        finally:
            self._open.discard(watch)
            self._held[principal.id] -= 1
            if not self._held[principal.id]:
                del self._held[principal.id]

    def close(self) -> None:
        """End them all, and those to come."""
        self._is_closed = True
        for watch in tuple(self._open):
            watch.end()


_PAUSE_S: Final = 0.01
_PAUSE_EACH_S: Final = 0.0005
"""Between two looks, by how many wait: news is at most so much late."""


class InvocationPoller:
    """Who waits for news of which invocation. Looks only while somebody does."""

    def __init__(self) -> None:
        self._waiting: dict[
            asyncio.Future[InvocationProgress | None], tuple[str, InvocationProgress | None]
        ] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait_for_change(
        self, invocations: Invocations, invocation_id: str, seen: InvocationProgress | None
    ) -> InvocationProgress | None:
        """How far it has come, once that is further than `seen`; None: it is not there any more.

        Raises what the queue raises.
        """
        news: asyncio.Future[InvocationProgress | None] = asyncio.get_running_loop().create_future()
        with self._held(news, invocation_id, seen):
            # What happened before somebody looks for it is seen here.
            mark = (await invocations.marks([invocation_id])).get(invocation_id)
            if mark != seen or mark is None:
                return mark
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._poll(invocations))
            return await news

    @contextmanager
    def _held(
        self,
        news: "asyncio.Future[InvocationProgress | None]",
        invocation_id: str,
        seen: InvocationProgress | None,
    ) -> Iterator[None]:
        self._waiting[news] = (invocation_id, seen)
        try:
            yield
        finally:
            del self._waiting[news]
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _poll(self, invocations: Invocations) -> None:
        try:
            while True:
                count = await invocations.changed(-1)  # first: what changes while we look is not missed
                marks = await invocations.marks({one for one, _ in self._waiting.values()})
                for news, (invocation_id, seen) in self._waiting.items():
                    if not news.done() and marks.get(invocation_id) != seen:
                        news.set_result(marks.get(invocation_id))
                await asyncio.sleep(_PAUSE_S + _PAUSE_EACH_S * len(self._waiting))
                await invocations.changed(count)
        except Exception as exc:  # it is of those who wait: each tells its own caller
            for news in self._waiting:
                if not news.done():
                    news.set_exception(exc)
