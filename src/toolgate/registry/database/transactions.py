"""How the tables are worked on, whatever the engine: one transaction at a time, on threads of its own.

An engine says how one transaction is run (`Database`), and on which threads. What a transaction did is handed
on from the thread that committed it, before the writer hears of it; so a writer that is cancelled while it
waits takes nothing away from others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, Protocol, TypeVar

from sqlalchemy import Connection

from toolgate.errors import StorageFailed, StorageUnavailable

T = TypeVar("T")
Topic = Literal[
    "registry", "reports", "catalog", "queue", "runs", "leases", "approvals", "spending", "audit", "sessions"
]
"""What a transaction changes. Of invocations: what waits for a node, what else is known of them, or nothing
but until when a node has them. Replicas are not notified of those, nor of what is listed after them."""


class TransactionRunner(Protocol):
    """How an engine runs a transaction. Used from worker threads; failures are ours, not the library's."""

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:
        """`work` over one unchanging state. Waits for no writer, and no writer waits for it.

        `is_single`: it is one statement, which is such a state by itself and needs no transaction around it.
        """

    def change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        """`work`, then a commit that has reached the disk; or nothing at all."""


def _ignore_result(_: object) -> None:
    """What follows a change that nobody waits for."""


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
        """`within_s`: when a caller is told that the database hangs. None: never, it is a file."""
        self._database = database
        self._reader = reader
        self._writer = writer
        self._within_s = within_s
        self._loop = asyncio.get_running_loop()
        self.is_closed = False

    async def read(
        self, work: Callable[[Connection], T], *, is_long: bool = False, is_single: bool = False
    ) -> T:
        """See `Database.read`. Only work that is said to be long may take as long as it likes."""
        self._check_open()
        read = partial(self._database.read, work, is_single=is_single)
        async with _limit_wait(None if is_long else self._within_s, "the database does not answer"):
            return await self._loop.run_in_executor(self._reader, read)

    async def change(
        self,
        work: Callable[[Connection], T],
        *,
        then: Callable[[T], None] = _ignore_result,
        topic: Topic = "registry",
    ) -> T:
        """See `Database.change`. `then` runs in the loop after the commit, also when the caller has left."""
        self._check_open()
        async with _limit_wait(
            self._within_s, "the database does not answer: the change may have been stored or not"
        ):
            return await self._loop.run_in_executor(self._writer, self._commit, work, then, topic)

    def close(self) -> None:
        """Take no more work. What was asked for before is done."""
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
    """Raises StorageUnavailable when the block takes too long. Its thread cannot be stopped, and goes on."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as exc:
        raise StorageUnavailable(message) from exc
