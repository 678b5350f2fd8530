"""What every store promises its watchers, named guarantees included."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.stores import DEADLINE_S, STORES, Clock, delete, put, read_watch
from tests.contract.watch_guarantees import Committed, broken_guarantees, events
from tests.scenarios.soak import rounds
from toolgate.errors import Compacted, WatchLagged
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import PAGE, Store

pytestmark = pytest.mark.anyio

BUFFERS = {"memory": 256, "sqlite": 64, "postgresql": 64}
"""How many batches a watcher may fall behind. In memory, writers leave watchers fewer turns."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def buffer(engine: str) -> int:
    return BUFFERS[engine]


@pytest.fixture
async def store(engine: str, buffer: int, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with STORES[engine](tmp_path, clock, StoreLimits(watch_buffer=buffer)) as opened:
        yield opened


async def test_wat_6_a_watch_replays_then_bookmarks_then_goes_live(store: Store) -> None:
    await store.write([put("a")], actor="ada")
    await store.write([put("b")], actor="ada")

    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        replayed = [await anext(batches) for _ in range(3)]
        await store.write([delete("a")], actor="ada")
        live = await anext(batches)

    assert [(batch.revision, len(batch.changes)) for batch in [*replayed, live]] == [
        (1, 1),
        (2, 1),
        (2, 0),
        (3, 1),
    ]


async def test_a_watch_of_an_empty_store_begins_with_a_bookmark(store: Store) -> None:
    assert await read_watch(store, 0, upto=0) == [ChangeBatch(revision=0)]


async def test_wat_4_a_watch_from_the_future_is_refused_at_once(store: Store) -> None:
    await store.write([put("fs")], actor="ada")

    with pytest.raises(Compacted):
        async with store.watch(2):
            pass


async def test_wat_12_every_position_has_one_digest_however_it_is_learned(store: Store) -> None:
    listed = [(await store.list()).digest]
    for n in range(4):
        committed = await store.commit([put("fs", n=n)], actor="ada")
        listed.append((await store.list()).digest)
        assert committed.digest == store.digest == listed[-1]
    seen = await read_watch(store, 0, upto=4)

    assert len(set(listed)) == 5
    assert [(batch.revision, batch.digest) for batch in events(seen)] == list(enumerate(listed))[1:]
    assert (seen[-1].changes, seen[-1].digest) == ((), listed[4])


async def test_wat_12_a_watch_is_resumed_only_in_the_history_it_saw(
    buffer: int, store: Store, clock: Clock
) -> None:
    commits = [await store.commit([put("fs", n=n)], actor="ada") for n in range(buffer + 4)]
    digests = ["", *(batch.digest for batch in commits)]
    clock.now_ms += 1
    compacted = await store.compact(keep_revisions=buffer + 2, keep_ms=0)

    # Where the log begins, in the log, in memory, and the newest.
    for since in (compacted, compacted + 1, len(digests) - 2, len(digests) - 1):
        async with asyncio.timeout(DEADLINE_S), store.watch(since, digests[since]) as batches:
            first = await anext(batches)
        with pytest.raises(Compacted):
            async with store.watch(since, digests[since - 1]):
                pass

        assert first.revision == min(since + 1, len(digests) - 1)
        assert first.digest == digests[first.revision]


async def test_wat_5_a_slow_reader_is_cut_off_and_the_others_are_not(buffer: int, store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S), store.watch(0) as slow, store.watch(0) as fast:
        assert await anext(slow) == await anext(fast) == ChangeBatch(revision=0)
        seen = []
        for n in range(buffer + 1):
            await store.write([put("fs", n=n)], actor="ada")
            seen.append(await anext(fast))

        with pytest.raises(WatchLagged):
            await anext(slow)
    assert [batch.revision for batch in seen] == list(range(1, buffer + 2))


async def test_a_reader_exactly_at_the_limit_is_still_served(buffer: int, store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        await anext(batches)
        for n in range(buffer):
            await store.write([put("fs", n=n)], actor="ada")

        assert [(await anext(batches)).revision for _ in range(buffer)] == list(range(1, buffer + 1))


async def test_wat_10_a_record_deleted_and_made_again_while_away_is_the_new_one(store: Store) -> None:
    await store.write([put("fs", generation=1)], actor="ada")
    await store.write([delete("fs")], actor="ada")
    await store.write([put("fs", if_revision=0, generation=2)], actor="ada")

    seen = events(await read_watch(store, 1, upto=3))

    assert [(change.operation, change.after) for batch in seen for change in batch.changes] == [
        ("delete", None),
        ("put", {"generation": 2}),
    ]
    stored = await store.get("server", "fs")
    assert stored is not None
    assert (stored.revision, stored.body) == (3, {"generation": 2})


async def test_a_write_without_effect_reaches_no_watcher(store: Store) -> None:
    await store.write([put("fs", n=1)], actor="ada")
    async with asyncio.timeout(DEADLINE_S), store.watch(1) as batches:
        await anext(batches)
        await store.write([put("fs", n=1)], actor="ada")
        await store.write([put("fs", n=1), put("other")], actor="ada")

        batch = await anext(batches)
    assert [(change.revision, change.id) for change in batch.changes] == [(2, "other")]


async def test_a_cancelled_writer_takes_nothing_from_the_watchers(store: Store) -> None:
    """What is in the log reached the watchers once, whether its writer lived to hear of it or not."""
    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        await anext(batches)
        for n in range(50):
            writer = asyncio.ensure_future(store.write([put(f"s{n}")], actor="ada"))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            writer.cancel()
            await asyncio.wait([writer])
        newest = await store.write([put("last")], actor="ada")
        live = [await anext(batches) for _ in range(newest)]

    assert live == events(await read_watch(store, 0, upto=newest))
    assert {change.id for batch in live for change in batch.changes} == {
        stored.id for stored in (await store.list()).records
    }


async def test_closing_ends_the_watchers_and_is_idempotent(store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        await anext(batches)
        waiting = asyncio.ensure_future(anext(batches, None))
        await asyncio.sleep(0)
        await store.aclose()
        await store.aclose()

        assert await waiting is None


async def test_wat_11_a_clock_set_back_cannot_make_a_hole_in_the_log(store: Store, clock: Clock) -> None:
    for at_ms in (1_000, 90_000, 2_000, 3_000):
        clock.now_ms = at_ms
        await store.write([put("fs", at=at_ms)], actor="ada")
    clock.now_ms = 60_000

    assert await store.compact(keep_revisions=0, keep_ms=10_000) == 1
    assert [batch.revision for batch in events(await read_watch(store, 1, upto=4))] == [2, 3, 4]


async def test_wat_3_a_watch_from_before_the_compaction_is_refused_as_compacted(store: Store) -> None:
    for n in range(6):
        await store.write([put("fs", n=n)], actor="ada")
    await store.compact(keep_revisions=2, keep_ms=0)

    with pytest.raises(Compacted):
        async with store.watch(3):
            pass
    assert [batch.revision for batch in await read_watch(store, 4, upto=6)] == [5, 6, 6]


async def test_compaction_of_everything_leaves_a_store_that_works(store: Store) -> None:
    await store.write([put("fs", n=1)], actor="ada")
    await store.compact(keep_revisions=0, keep_ms=0)

    assert await read_watch(store, 1, upto=1) == [ChangeBatch(revision=1)]
    assert await store.write([put("fs", n=2)], actor="ada") == 2


async def until_bookmark(batches: AsyncIterator[ChangeBatch]) -> None:
    while (await anext(batches)).changes:
        pass


async def test_a_replay_that_the_compaction_overtakes_says_so(buffer: int, store: Store) -> None:
    for n in range(buffer + PAGE + 50):
        await store.write([put("fs", n=n)], actor="ada")

    async with asyncio.timeout(DEADLINE_S), store.watch(0) as batches:
        await anext(batches)
        await store.compact(keep_revisions=10, keep_ms=0)

        with pytest.raises(Compacted):
            await until_bookmark(batches)


# The named guarantees, over thousands of random transactions


class Traffic:
    """Random transactions from several writers, remembered as their writers know them."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self.committed: dict[int, list[RecordWrite]] = {}
        self._alive: set[str] = set()
        self._turn = asyncio.Lock()

    async def run(self, transactions: int) -> None:
        for _ in range(transactions):
            await self._one()
            if self._random.random() < 0.3:
                await asyncio.sleep(0)

    async def _one(self) -> None:
        async with self._turn:
            ids = self._random.sample([f"s{n}" for n in range(20)], self._random.randint(1, 6))
            writes = [
                delete(name)
                if name in self._alive and self._random.random() < 0.4
                else put(name, nonce=self._random.random())
                for name in ids
            ]
            self._alive |= {write.id for write in writes if write.body is not None}
            self._alive -= {write.id for write in writes if write.body is None}
            self.committed[await self._store.write(writes, actor="traffic")] = writes


async def follow(store: Store, since: int, last: int, *, rng: random.Random) -> list[ChangeBatch]:
    """A watcher that reads at its own pace and hangs up now and then, to resume from what it has."""
    seen: list[ChangeBatch] = []
    cursor, digest = since, ""
    while cursor < last:
        async with store.watch(cursor, digest) as batches:
            async for batch in batches:
                seen.append(batch)
                cursor, digest = batch.revision, batch.digest
                if rng.random() < 0.05:
                    await asyncio.sleep(0)
                if cursor >= last or rng.random() < 0.01:
                    break
    return seen


@pytest.mark.parametrize("seed", range(1, 1 + rounds(suite=1, soak=20)))
async def test_wat_1_wat_2_wat_7_every_watcher_gets_every_guarantee(store: Store, seed: int) -> None:
    transactions, rng = 800, random.Random(seed)
    traffic = Traffic(store, seed)
    await traffic.run(50)
    starts = [0, 10, 50, 50, 30]

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        watchers = [group.create_task(follow(store, since, 50 + transactions, rng=rng)) for since in starts]
        for _ in range(4):
            group.create_task(traffic.run(transactions // 4))

    committed: Committed = traffic.committed
    assert sorted(committed) == list(range(1, 51 + transactions))
    assert [
        broken_guarantees(watcher.result(), committed, since=since)
        for since, watcher in zip(starts, watchers, strict=True)
    ] == [[]] * len(starts)


async def test_wat_2_a_cache_kept_by_watching_equals_the_list(store: Store) -> None:
    traffic, cache, rng = Traffic(store, 3), {}, random.Random(3)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        watcher = group.create_task(follow(store, 0, 400, rng=rng))
        group.create_task(traffic.run(400))

    for batch in watcher.result():
        cache.update({change.id: change.after for change in batch.changes})
    listing = await store.list()
    assert {name: body for name, body in cache.items() if body is not None} == {
        stored.id: stored.body for stored in listing.records
    }


async def test_wat_8_many_idle_watchers_all_hear_of_one_change(store: Store) -> None:
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        watchers = [group.create_task(follow(store, 0, 1, rng=random.Random(0))) for _ in range(2_000)]
        await asyncio.sleep(0)
        await store.write([put("fs")], actor="ada")

    assert {tuple(batch.revision for batch in watcher.result()) for watcher in watchers} == {(0, 1)}
