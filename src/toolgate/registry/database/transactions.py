"""Runs transactions for the event loop on worker threads, on any engine.

An engine implements `TransactionRunner` and chooses the threads. The thread that commits a transaction passes
its result on before the writer gets it. So a writer that is cancelled while it waits loses nothing for
others. Never runs a statement on the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from toolgate.errors import StorageFailed, StorageUnavailable

T = TypeVar("T")
S = TypeVar("S", bound="SharedTable")
P = ParamSpec("P")
Topic = Literal[
    "registry", "reports", "catalog", "queue", "runs", "leases", "approvals", "spending", "audit", "sessions"
]
"""What a transaction changes. Invocations have three topics: the queue, the runs, and renewed leases. Other
replicas are notified of the topics before `leases` only."""


class TransactionRunner(Protocol):
    """Runs one transaction on a worker thread. Raises a `ToolgateError`, never an error of the driver."""

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:
        """Run `work` on one snapshot. Waits for no writer, and no writer waits for it.

        `is_single`: one statement is a snapshot by itself and needs no transaction around it.
        """

    def change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        """Run `work` and commit durably, or change nothing."""


@dataclass(eq=False)
class Transactions:
    """Runs the transactions of a database on its threads, for the event loop."""

    database: TransactionRunner
    reader: Executor
    writer: Executor
    within_s: float | None = None
    """How long to wait for a hanging database. None: forever, since a file does not hang."""
    is_closed: bool = False
    """If True, it accepts no more work. Submitted work still runs."""

    async def read(
        self, work: Callable[[Connection], T], *, is_long: bool = False, is_single: bool = False
    ) -> T:
        """See `TransactionRunner.read`. Only work declared as long has no deadline."""
        read = partial(self.database.read, work, is_single=is_single)
        async with self._limit_wait("the database does not respond", None if is_long else self.within_s):
            return await asyncio.get_running_loop().run_in_executor(self.reader, read)

    async def change(
        self,
        work: Callable[[Connection], T],
        *,
        then: Callable[[T], None] | None = None,
        topic: Topic = "registry",
    ) -> T:
        """See `TransactionRunner.change`. `then` runs in the loop after it, even without the caller."""
        loop = asyncio.get_running_loop()

        def commit() -> T:
            result = self.database.change(work, topic)
            if then is not None:
                loop.call_soon_threadsafe(then, result)
            return result

        message = "the database does not respond: the change may or may not be stored"
        async with self._limit_wait(message, self.within_s):
            return await loop.run_in_executor(self.writer, commit)

    @asynccontextmanager
    async def _limit_wait(self, message: str, within_s: float | None) -> AsyncIterator[None]:
        """Raises StorageUnavailable if the block takes too long. Its thread cannot be stopped."""
        if self.is_closed:
            raise StorageFailed("the store is closed")
        try:
            async with asyncio.timeout(within_s):
                yield
        except TimeoutError as exc:
            raise StorageUnavailable(message) from exc


@dataclass(eq=False)
class SharedTable:
    """Rows that all replicas on one database share. Its methods are transactions; see `transaction`."""

    transactions: Transactions
    read_clock_ms: Callable[[Connection], int]
    """Reads the clock that all replicas use."""

    def on_change(self, topic: Topic, result: Any) -> None:
        """Called in the loop after each change with its result, even if the caller is gone."""


def transaction(
    topic: Topic | None = None, *, is_single: bool = False
) -> Callable[
    [Callable[Concatenate[S, Connection, P], T]], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
]:
    """Turn a function of a connection into an awaitable method that runs it in one transaction.

    `topic`: what it changes. None: it only reads, and `is_single` is passed on.
    """

    def decorate(
        work: Callable[Concatenate[S, Connection, P], T],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
        @wraps(work)
        async def run(table: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            def work_on(connection: Connection) -> T:
                return work(table, connection, *args, **kwargs)

            if topic is None:
                return await table.transactions.read(work_on, is_single=is_single)
            then = partial(table.on_change, topic)
            return await table.transactions.change(work_on, then=then, topic=topic)

        return run

    return decorate


class ChangeCounter:
    """Counts changes of a table, from 0, for tasks that wait for the next one. For the event loop only."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    def increment(self) -> None:
        self._count += 1
        self._wake()

    def close(self) -> None:
        """End every wait with StorageFailed."""
        self._is_closed = True
        self._wake()

    async def changed(self, seen: int) -> int:
        """Wait until the count exceeds `seen`. Returns the new count."""
        while self._count <= seen:
            if self._is_closed:
                raise StorageFailed("the store is closed")
            await self._changed.wait()
        return self._count

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
