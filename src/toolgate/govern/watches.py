"""Watches of registry changes, and waits for the progress of invocations.

A watch sends which records changed, and never the records: reading a record has its own rules. Invariant: a
revision without changes for the principal is a bookmark to it, so resuming from the last revision misses and
repeats nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from toolgate.errors import SessionLimit, ToolgateError
from toolgate.gateway.auth.identity import reaches
from toolgate.model.principals import Principal
from toolgate.model.revisions import ChangeBatch, Kind
from toolgate.registry.invocations import InvocationProgress
from toolgate.registry.invocations.sql import Invocations

MAX_WATCHES: Final = 100  # open watches per principal: each holds a stream and a cursor
WATCHED_KINDS: Final[tuple[Kind, ...]] = ("server", "task", "profile", "pin", "chat_upstream")
"""The kinds that every reader of the registry may watch."""

T = TypeVar("T")


def watchable_kinds(principal: Principal) -> frozenset[Kind]:
    """The kinds whose changes `principal` may watch. No principal may watch a `secret`."""
    return frozenset((*WATCHED_KINDS, "key") if reaches(principal.role, "admin") else WATCHED_KINDS)


def filter_batch(batch: ChangeBatch, kinds: Collection[Kind]) -> ChangeBatch:
    """The changes of `kinds` in the batch. A batch without any is a bookmark."""
    return replace(batch, changes=tuple(change for change in batch.changes if change.kind in kinds))


@dataclass(eq=False, slots=True)
class RegistryWatch:
    """An open watch. Another task can end it, even while it waits."""

    is_over: bool
    reason: ToolgateError | None = None
    """The reason for its end, if its reader must get one."""
    _timeout: asyncio.Timeout | None = field(default=None, init=False)

    def end(self, reason: ToolgateError | None = None) -> None:
        """End the watch: its reader gets the reason and nothing else."""
        self.is_over, self.reason = True, self.reason or reason
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def next(self, batches: AsyncIterator[T], *, within_s: float) -> T | None:
        """The next batch; None if none arrives within that time, or the watch has ended.

        A cancelled wait loses nothing: a store's watch moves its cursor only when it returns a batch, and
        any other iterator must do so, too.
        """
        try:
            async with asyncio.timeout(within_s) as self._timeout:
                batch = await anext(batches, None)
        except TimeoutError:
            return None
        finally:
            self._timeout = None
        self.is_over |= batch is None
        return batch


class RegistryWatches:
    """The open watches of this process, counted by principal."""

    def __init__(self, most: int = MAX_WATCHES) -> None:
        self._most = most
        self._open: dict[RegistryWatch, str] = {}
        """The principal id of each watch."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def admit(self, principal: Principal) -> Iterator[RegistryWatch]:
        """Open a watch for the block. Raises SessionLimit beyond the limit."""
        if [*self._open.values()].count(principal.id) >= self._most:
            raise SessionLimit(
                f"`{principal.id}` has reached its limit of {self._most} open watches",
                hint="close one of them, or share one watch between its readers",
            )
        watch = RegistryWatch(is_over=self._is_closed)
        self._open[watch] = principal.id
        try:
            yield watch
        finally:
            del self._open[watch]

    def close(self) -> None:
        """End all watches, current and future."""
        self._is_closed = True
        for watch in tuple(self._open):
            watch.end()


# Between two polls: a person does not notice 10 ms, and 1,000 waiters cause one query each half second.
_PAUSE_S: Final = 0.01
_PAUSE_EACH_S: Final = 0.0005  # for each waiter


class InvocationPoller:
    """Waits for the progress of invocations. One poll of the queue serves all waiters."""

    def __init__(self) -> None:
        self._waiting: dict[
            asyncio.Future[InvocationProgress | None], tuple[str, InvocationProgress | None]
        ] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait_for_change(
        self, invocations: Invocations, invocation_id: str, seen: InvocationProgress | None
    ) -> InvocationProgress | None:
        """Wait until the progress differs from `seen`, and return it; None: the invocation was deleted."""
        news: asyncio.Future[InvocationProgress | None] = asyncio.get_running_loop().create_future()
        self._waiting[news] = (invocation_id, seen)
        try:
            # Returns progress from before the next poll.
            mark = (await invocations.marks([invocation_id])).get(invocation_id)
            if mark != seen or mark is None:
                return mark
            if self._polling is None or self._polling.done():
                self._polling = asyncio.create_task(self._poll(invocations))
            return await news
        finally:
            del self._waiting[news]
            if not self._waiting and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def _poll(self, invocations: Invocations) -> None:
        try:
            while True:
                count = await invocations.changed(-1)  # first, so that a change during the poll is not missed
                marks = await invocations.marks({one for one, _ in self._waiting.values()})
                for news, (invocation_id, seen) in self._waiting.items():
                    if not news.done() and marks.get(invocation_id) != seen:
                        news.set_result(marks.get(invocation_id))
                await asyncio.sleep(_PAUSE_S + _PAUSE_EACH_S * len(self._waiting))
                await invocations.changed(count)
        except Exception as exc:  # each waiter raises it to its caller
            for news in self._waiting:
                if not news.done():
                    news.set_exception(exc)
