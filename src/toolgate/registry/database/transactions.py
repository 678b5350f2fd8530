"""Transactions for the event loop, whatever the engine: each runs on a worker thread.

An engine implements `TransactionRunner` and chooses the threads. The thread that commits a transaction passes
its result on before the writer gets it, so a writer that is cancelled while it waits loses nothing for
others. Never runs a statement on the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from sqlalchemy import Connection

from toolgate.errors import StorageFailed, StorageUnavailable

T = TypeVar("T")
Topic = Literal[
    "registry", "reports", "catalog", "queue", "runs", "leases", "approvals", "spending", "audit", "sessions"
]
"""What a transaction changes. Invocations have three: the queue, the runs, and leases that are merely
renewed. Other replicas are notified of the topics before `leases`, and not of the rest."""


class TransactionRunner(Protocol):
    """Runs one transaction on a worker thread. Raises a `ToolgateError`, never an error of the driver."""

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:
        """Run `work` on one snapshot. Waits for no writer, and no writer waits for it.

        `is_single`: one statement is a snapshot by itself and needs no transaction around it.
        """

    def change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        """Run `work` and commit durably, or change nothing."""


def ignore_result(_: object) -> None:
    """For a change that needs no callback."""


class Transactions:
    """Runs the transactions of a database on its threads, for the event loop."""

    def __init__(
        self,
        database: TransactionRunner,
        *,
        reader: Executor,
        writer: Executor,
        within_s: float | None = None,
    ) -> None:
        """`within_s`: how long to wait for a database that hangs. None: for ever, since a file does not."""
        self._database = database
        self._reader = reader
        self._writer = writer
        self._within_s = within_s
        self._loop = asyncio.get_running_loop()
        self.is_closed = False

    async def read(
        self, work: Callable[[Connection], T], *, is_long: bool = False, is_single: bool = False
    ) -> T:
        """See `TransactionRunner.read`. Only work declared as long has no deadline."""
        self._check_open()
        read = partial(self._database.read, work, is_single=is_single)
        async with _limit_wait(None if is_long else self._within_s, "the database does not answer"):
            return await self._loop.run_in_executor(self._reader, read)

    async def change(
        self,
        work: Callable[[Connection], T],
        *,
        then: Callable[[T], None] = ignore_result,
        topic: Topic = "registry",
    ) -> T:
        """See `TransactionRunner.change`. `then` runs in the loop after it, even without the caller."""
        self._check_open()
        async with _limit_wait(
            self._within_s, "the database does not answer: the change may have been stored or not"
        ):
            return await self._loop.run_in_executor(self._writer, self._commit, work, then, topic)

    def close(self) -> None:
        """Take no more work. What was submitted before still runs."""
        self.is_closed = True

    def _check_open(self) -> None:
        if self.is_closed:
            raise StorageFailed("the store is closed")

    def _commit(self, work: Callable[[Connection], T], then: Callable[[T], None], topic: Topic) -> T:
        result = self._database.change(work, topic)
        self._loop.call_soon_threadsafe(then, result)
        return result


@asynccontextmanager
async def _limit_wait(within_s: float | None, message: str) -> AsyncIterator[None]:
    """Raises StorageUnavailable when the block takes too long. Its thread cannot be stopped and continues."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as exc:
        raise StorageUnavailable(message) from exc


class SharedTable:
    """Rows that all replicas on one database share. They all go by the clock that `read_clock_ms` reads."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms

    async def _read(self, work: Callable[..., T], **arguments: Any) -> T:
        """Run `work` with a connection, the time as `now_ms`, and `arguments`."""
        return await self._transactions.read(partial(self._run, work, arguments))

    async def _change(
        self,
        work: Callable[..., T],
        topic: Topic,
        *,
        then: Callable[[T], None] = ignore_result,
        **arguments: Any,
    ) -> T:
        """As `_read`, in a transaction that writes."""
        return await self._transactions.change(partial(self._run, work, arguments), then=then, topic=topic)

    def _run(self, work: Callable[..., T], arguments: Mapping[str, Any], connection: Connection) -> T:
        return work(connection, now_ms=self._read_clock_ms(connection), **arguments)


class ChangeCounter:
    """Counts changes of a table for those who wait for the next one. Starts at 0, only rises.

    Used from the event loop only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    def increment(self) -> None:
        """Report a change, made here or by another replica."""
        self._count += 1
        self._wake()

    def increment_if(self, is_changed: bool) -> None:  # noqa: FBT001 (called with what a transaction returns)
        """Report a change, if there was one."""
        if is_changed:
            self.increment()

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
