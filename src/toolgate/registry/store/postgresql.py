"""The store in PostgreSQL, for any number of control plane replicas on one database.

Every replica reads the log after its newest revision and publishes it to its watchers. Its own writes arrive
in the same way as those of others, so there is one order. A commit notifies all replicas, and a poll finds
changes whose notification was lost. If a history cannot be followed (the log was cut, the database replaced),
every watcher ends and lists again.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Timer
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, text

from toolgate.errors import Compacted, StartRefused, StorageFailed, StorageUnavailable, ToolgateError
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.registry.database import statements
from toolgate.registry.database.postgresql import CHANNEL, READERS, PostgresDatabase, is_unreachable
from toolgate.registry.database.statements import LogUpdate, StoreHead
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.records.transaction import chain_digest
from toolgate.registry.store import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.sql_store import PAGE, Store

_CURRENT_POLLS: Final = 3
"""Data that was read more polls ago may be old: another process may have committed without notice."""
_FIRST_DELAY_S: Final = 0.1  # between attempts to connect: a restart takes PostgreSQL a second
_LONGEST_DELAY_S: Final = 5.0  # a failover takes some seconds
_TELL_EVERY_S: Final = 60.0
"""How often a start that waits for its database logs a warning: visible, without flooding the log."""
_CLOCK_MS: Final = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_postgres_store(
    url: str,
    clock_ms: Callable[[], int],
    *,
    waits: bool = False,
    limits: StoreLimits = DEFAULT_STORE_LIMITS,
    channel: str = CHANNEL,
) -> AsyncIterator["PostgresStore"]:
    """Open the store in the database at `url`, and create its tables if needed. Raises StartRefused.

    `waits`: whether to wait for a database that is unreachable. `channel`: where to listen for commits.
    """
    database = PostgresDatabase(url)
    reader = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="registry-read")
    # One thread: writers queue at the database anyway, and so never take a thread from a reader.
    writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry-write")
    loop = asyncio.get_running_loop()
    try:
        prepare = partial(loop.run_in_executor, writer, database.prepare)
        head = await (_prepare_when_reachable(database, prepare) if waits else prepare())
        transactions = Transactions(database, reader=reader, writer=writer, within_s=limits.timeout_s)
        store = PostgresStore(transactions, head, clock_ms=clock_ms, limits=limits)
        following = asyncio.create_task(store.follow(database.parameters, channel))
        try:
            yield store
        finally:
            following.cancel()
            await asyncio.wait([following])
            await store.aclose()
    finally:
        await asyncio.shield(asyncio.to_thread(_close_within, limits.close_s, database, reader, writer))


async def _prepare_when_reachable(
    database: PostgresDatabase, prepare: Callable[[], Awaitable[StoreHead]]
) -> StoreHead:
    """Retry until the database can be reached. Raises StartRefused for any other failure."""
    delay_s, notified_s = _FIRST_DELAY_S, -_TELL_EVERY_S
    while True:
        try:
            return await prepare()
        except StartRefused as exc:
            if not is_unreachable(exc):
                raise
            if _now_s() - notified_s >= _TELL_EVERY_S:
                _log.warning("waiting for %s: %s", database.where, exc)
                notified_s = _now_s()
        await asyncio.sleep(random.uniform(delay_s / 2, delay_s))  # noqa: S311 (spreads replicas)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


def _close_within(close_s: float, database: PostgresDatabase, *executors: ThreadPoolExecutor) -> None:
    """Let transactions end within `close_s`, then break their connections."""
    impatience = Timer(close_s, database.sever)
    impatience.start()
    for executor in executors:
        executor.shutdown()
    impatience.cancel()
    database.close()


class PostgresStore(Store):
    """The store over a prepared database. `open_postgres_store` makes it."""

    def __init__(
        self, transactions: Transactions, head: StoreHead, *, clock_ms: Callable[[], int], limits: StoreLimits
    ) -> None:
        super().__init__(transactions, head, clock_ms=clock_ms, limits=limits)
        self._poll_s = limits.poll_s
        self._turn = asyncio.Lock()
        self._current_s = _now_s()
        self._marks: dict[str, Sequence[object]] = {}

    @property
    def is_current(self) -> bool:
        return _now_s() - self._current_s <= _CURRENT_POLLS * self._poll_s

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        batch = await super().commit(writes, actor=actor, if_store_revision=if_store_revision)
        # It is stored: if it cannot be read back now, watchers get it with the next notification or poll.
        with suppress(StorageUnavailable, StorageFailed):
            await self._publish_own(batch)
        return batch

    @asynccontextmanager
    async def watch(self, since: int, digest: str = "") -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        # The watcher may know a newer revision from another replica, or the database was restored meanwhile.
        if not await self._hub.has(since, digest):
            await self._catch_up()
        async with self._hub.watch(since, digest) as batches:
            yield batches

    async def follow(self, parameters: Mapping[str, Any], channel: str) -> None:
        """Follow the commits of all replicas until cancelled."""
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as listener:
                    await listener.execute(f"LISTEN {channel}")
                    # Changes that were notified before it listened:
                    await self._catch_up()
                    self.reports.count.increment()
                    self.catalog.count.increment()
                    self.invocations.wake(is_queued=True)
                    delay_s = _FIRST_DELAY_S
                    await self._listen(listener)
            except (psycopg.Error, ToolgateError) as exc:
                if delay_s == _FIRST_DELAY_S:
                    _log.warning("cannot listen for changes in the database, retrying: %s", exc)
            except Exception:
                _log.exception("following the database failed, retrying")
            await asyncio.sleep(random.uniform(0, delay_s))  # noqa: S311 (spreads replicas, guards nothing)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def _listen(self, listener: psycopg.AsyncConnection[Any]) -> None:
        while True:
            topics = {
                notice.payload async for notice in listener.notifies(timeout=self._poll_s, stop_after=1)
            }
            await self._catch_up()
            for table in (self.reports, self.catalog):
                if table.topic in topics:
                    table.count.increment()
            if topics & {"queue", "runs"}:
                self.invocations.wake(is_queued="queue" in topics)
            if not topics:
                await self._poll_marks()

    async def _publish_own(self, batch: ChangeBatch) -> None:
        """Publish a local commit, without a query if it directly follows the known revision."""
        async with self._turn:
            known = self._hub.digest
            if batch.revision == self._hub.revision + 1 and known:
                if chain_digest(known, batch.revision, batch.changes) == batch.digest:
                    self._hub.publish(batch)
                    return
            elif (batch.revision, batch.digest) == (self._hub.revision, known):
                return
        await self._catch_up()

    async def _catch_up(self) -> None:
        async with self._turn:
            while True:
                known, requested_s = self._hub.revision, _now_s()
                try:
                    news = await self._transactions.read(
                        partial(statements.read_log_update, after=known, page=PAGE)
                    )
                except StorageFailed as exc:
                    _log.error("the log is unreadable, watchers list again: %s", exc)
                    self._restart(await self._transactions.read(statements.read_head))
                    return
                self._apply(news, known)
                if self._hub.revision >= news.head.revision:
                    self._current_s = requested_s
                    return

    def _apply(self, news: LogUpdate, known: int) -> None:
        head = news.head
        is_same = head.epoch == self.epoch and news.digest == self._hub.digest
        if not is_same or head.revision < known or head.compacted > known:
            _log.warning("the registry was replaced, cut or restored, watchers list again: %s", head)
            self._restart(head)
            return
        self._hub.on_compacted(head.compacted)
        for batch in news.batches:
            self._hub.publish(batch)

    def _restart(self, head: StoreHead) -> None:
        self.epoch = head.epoch
        self._hub.restart(head)

    async def _poll_marks(self) -> None:
        """Check the tables next to the log for changes."""
        for table in (self.reports, self.catalog):
            mark = await table.read_mark()
            if self._marks.get(table.topic) != mark:
                self._marks[table.topic] = mark
                table.count.increment()
        # Invocations change constantly while something runs, and claimers poll by themselves.
        self.invocations.wake(is_queued=False)

    def _read_clock_ms(self, connection: Connection) -> int:
        """Read the database's clock: clocks of replicas may differ by minutes, and a lease lasts seconds."""
        milliseconds: int = connection.execute(_CLOCK_MS).scalar_one()
        return milliseconds

    def _on_committed(self, batch: ChangeBatch) -> None:
        """Do nothing: commits are published from the log, in its order."""

    async def _read_log(self, after: int, upto: int) -> Sequence[ChangeBatch]:
        epoch, revision, digest = self.epoch, self._hub.revision, self._hub.digest

        def read(connection: Connection) -> Sequence[ChangeBatch]:
            """Read batches of the known history only."""
            if (
                statements.read_head(connection).epoch != epoch
                or statements.read_digest(connection, revision) != digest
            ):
                raise Compacted("the registry was replaced or restored")
            return statements.read_batches(connection, after, upto)

        return await self._transactions.read(read)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
