"""The named guarantees under faults: watchers that hang up and lag, compaction, lost connections, restarts.

With `-rP` it tells how much was seen.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contract.stores import STORES, Clock, delete, put
from tests.contract.watch_guarantees import Committed, broken_guarantees, events
from tests.postgres import PostgresServer, own_server
from tests.scenarios.soak import rounds
from toolgate.errors import Compacted, StorageFailed, StorageUnavailable, WatchLagged
from toolgate.model.revisions import ChangeBatch, RecordList, RecordWrite
from toolgate.registry.store import WATCH_BUFFER
from toolgate.registry.store.postgresql import open_postgres_store
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

TRANSACTIONS = rounds(suite=400, soak=20_000)
DEADLINE_S = rounds(suite=240, soak=1_800)
WATCHERS = 8
FAULT_EVERY = 100
"""Transactions between two faults."""


class Stage:
    """The replicas of a store, and what can happen to them."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = list(stores)

    async def disturb(self, _rng: random.Random) -> None:
        """Nothing can: it is all in memory."""


class ReopenedStage(Stage):
    """One store that is closed and opened again."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        super().__init__([])
        self._directory = directory
        self._stack = stack

    async def disturb(self, _rng: random.Random) -> None:
        await self._stack.aclose()
        store = await self._stack.enter_async_context(STORES["sqlite"](self._directory, Clock()))
        self.stores[:] = [store]


class ReplicatedStage(Stage):
    """Two stores on one PostgreSQL that drops their connections and is restarted."""

    def __init__(self, stores: Sequence[Store], server: PostgresServer) -> None:
        super().__init__(stores)
        self._server = server

    async def disturb(self, rng: random.Random) -> None:
        if rng.random() < 0.1:
            self._server.stop()
            self._server.start()
        else:
            others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            self._server.execute(f"SELECT pg_terminate_backend(pid) {others} AND random() < 0.7")


@asynccontextmanager
async def open_stage(name: str, directory: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        if name == "memory":
            yield Stage([await stack.enter_async_context(STORES["memory"](directory, Clock()))])
        elif name == "sqlite":
            stage = ReopenedStage(directory, stack)
            await stage.disturb(random.Random())
            yield stage
        else:
            server = stack.enter_context(own_server())
            url = server.create_database()
            replicas = [await stack.enter_async_context(open_postgres_store(url, Clock())) for _ in range(2)]
            yield ReplicatedStage(replicas, server)


class Traffic:
    """Random transactions at random replicas, remembered as their writer knows them."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self._alive: set[str] = set()
        self.committed: dict[int, list[RecordWrite]] = {}

    async def run(self, transactions: int) -> None:
        while len(self.committed) < transactions:
            if len(self.committed) % FAULT_EVERY == FAULT_EVERY // 2:
                await self._stage.disturb(self._rng)
            if len(self.committed) % FAULT_EVERY == 0:
                with suppress(StorageUnavailable):
                    await self._replica().compact(keep_revisions=self._rng.randrange(60), keep_ms=0)
            writes = self._next()
            self.committed[await self._write(writes)] = writes
            if self._rng.random() < 0.3:
                await asyncio.sleep(0)

    async def _write(self, writes: list[RecordWrite]) -> int:
        """Until it is stored, once: where the outcome is unknown, the registry is asked."""
        revision = len(self.committed) + 1
        while True:
            try:
                return await self._replica().write(writes, actor="traffic", if_store_revision=revision - 1)
            except StorageUnavailable:
                if (await listed(self._stage)).revision == revision:
                    return revision

    def _replica(self) -> Store:
        return self._rng.choice(self._stage.stores)

    def _next(self) -> list[RecordWrite]:
        ids = self._rng.sample([f"s{n}" for n in range(20)], self._rng.randint(1, 6))
        gone = {name for name in ids if name in self._alive and self._rng.random() < 0.4}
        self._alive = (self._alive | set(ids)) - gone
        return [delete(name) if name in gone else put(name, nonce=self._rng.random()) for name in ids]


@dataclass
class Segment:
    """What a watcher saw between two listings."""

    since: int
    seen: list[ChangeBatch] = field(default_factory=list)

    def broken_guarantees(self, committed: Committed) -> list[str]:
        """By that part of what was committed which it can be about: the whole of it would take too long."""
        newest = max((batch.revision for batch in self.seen), default=self.since)
        around = range(self.since, newest + 1)
        part = {revision: committed[revision] for revision in around if revision in committed}
        return broken_guarantees(self.seen, part, since=self.since)


class Watcher:
    """Lists, watches, hangs up and resumes; lists again when it is told to. Keeps a cache as a node would."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage = stage
        self._rng = rng
        self.segments: list[Segment] = []
        self.cache: dict[str, object] = {}
        self.cut_off = 0

    async def run(self, last: int) -> None:
        while not self.segments or self._cursor < last:
            # A store that is closed ends its watches at once.
            await asyncio.sleep(0)
            try:
                if not self.segments:
                    await self._list()
                await self._watch(last)
            except (Compacted, WatchLagged):
                self.cut_off += 1
                await self._list()
            except (StorageUnavailable, StorageFailed):
                continue

    @property
    def _cursor(self) -> int:
        segment = self.segments[-1]
        return segment.seen[-1].revision if segment.seen else segment.since

    async def _list(self) -> None:
        listing = await listed(self._stage)
        self.cache = {stored.id: stored.body for stored in listing.records}
        self.segments.append(Segment(listing.revision))

    async def _watch(self, last: int) -> None:
        store = self._replica()
        async with store.watch(self._cursor) as batches:
            async for batch in batches:
                self.segments[-1].seen.append(batch)
                for change in batch.changes:
                    self.cache[change.id] = change.after
                if batch.revision >= last or self._rng.random() < 0.01:
                    break
                if self._rng.random() < 0.0005:
                    await self._stay_away(store, min(last, batch.revision + WATCH_BUFFER + 1))
        await self._stay_away(store, min(last, self._cursor + self._rng.randrange(2 * FAULT_EVERY)))

    async def _stay_away(self, store: Store, until: int) -> None:
        """Until that revision, or until the store is closed."""
        async with store.watch(until) as future:
            await anext(future, None)

    def _replica(self) -> Store:
        return self._rng.choice(self._stage.stores)


async def listed(stage: Stage) -> RecordList:
    while True:
        with suppress(StorageUnavailable, StorageFailed):
            return await stage.stores[-1].list()
        await asyncio.sleep(0)


@pytest.mark.soak
@pytest.mark.parametrize("name", STORES)
async def test_wat_1_every_watcher_gets_every_guarantee_whatever_happens(name: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    async with asyncio.timeout(DEADLINE_S), open_stage(name, tmp_path) as stage:
        traffic = Traffic(stage, rng)
        watchers = [Watcher(stage, random.Random(seed)) for seed in range(WATCHERS)]
        async with asyncio.TaskGroup() as group:
            for watcher in watchers:
                group.create_task(watcher.run(TRANSACTIONS))
            group.create_task(traffic.run(TRANSACTIONS))
        listing = await listed(stage)

    committed: Committed = traffic.committed
    segments = [segment for watcher in watchers for segment in watcher.segments]
    batches = [batch for segment in segments for batch in events(segment.seen)]
    changes, cut_off = sum(len(one.changes) for one in batches), sum(one.cut_off for one in watchers)
    sys.stdout.write(f"{name}: {len(batches)} batches, {changes} changes, cut off {cut_off} times\n")
    assert sorted(committed) == list(range(1, TRANSACTIONS + 1))
    assert [segment.broken_guarantees(committed) for segment in segments] == [[]] * len(segments)
    expected = {stored.id: stored.body for stored in listing.records}
    for watcher in watchers:
        assert {name: body for name, body in watcher.cache.items() if body is not None} == expected
