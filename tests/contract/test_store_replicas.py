"""Several control processes on one database: each is a store that keeps every promise, and they agree."""

import asyncio
import random

import pytest

from tests.contract.stores import DEADLINE_S, Clock, delete, put, read_watch
from tests.contract.watch_guarantees import events
from tests.scenarios.soak import rounds
from toolgate.errors import Compacted, Conflict
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000
CAS_ROUNDS = rounds(suite=25, soak=1_000)


async def test_replicas_are_one_registry(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    await one.write([put("a", n=1)], actor="ada")

    assert one.epoch == other.epoch
    assert await other.list() == await one.list()
    assert await other.write([put("a", n=2, if_revision=1)], actor="bob") == 2
    with pytest.raises(Conflict):
        await one.write([put("a", n=3, if_revision=1)], actor="ada")
    with pytest.raises(Conflict):
        await one.write([put("b")], actor="ada", if_store_revision=1)


async def test_rep_4_a_writer_sees_its_own_revision_at_once(replicas: tuple[Store, Store]) -> None:
    for n in range(20):
        for store in replicas:
            revision = await store.write([put("fs", n=n, by=id(store))], actor="ada")

            assert store.revision >= revision
            assert (await store.list()).revision >= revision


async def test_wat_9_what_is_written_at_either_is_watched_at_both(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    async with asyncio.timeout(DEADLINE_S), one.watch(0) as at_one, other.watch(0) as at_other:
        for n in range(10):
            await one.write([put("a", n=n), put("b", n=n)], actor="ada")
            await other.write([put("a", n=n), put("c", n=n)], actor="bob")
        seen = [[await anext(batches) for _ in range(21)] for batches in (at_one, at_other)]

    assert seen[0] == seen[1]
    assert [batch.revision for batch in seen[0]] == list(range(21))
    assert events(seen[0]) == events(await read_watch(other, 0, upto=20))


@pytest.mark.soak
async def test_sto_6_eight_writers_over_two_replicas_lose_no_step(replicas: tuple[Store, Store]) -> None:
    await replicas[0].write([put("n", count=0)], actor="ada")

    async def count_up(store: Store) -> list[int]:
        won: list[int] = []
        while len(won) < CAS_ROUNDS:
            stored = await store.get("server", "n")
            assert stored is not None
            try:
                count = stored.body["count"] + 1
                won.append(await store.write([put("n", if_revision=stored.revision, count=count)], actor="w"))
            except Conflict:
                await asyncio.sleep(0)
        return won

    won = await asyncio.gather(*(count_up(replicas[n % 2]) for n in range(8)))

    assert sorted(revision for each in won for revision in each) == list(range(2, 8 * CAS_ROUNDS + 2))
    stored = await replicas[1].get("server", "n")
    assert stored is not None
    assert stored.body == {"count": 8 * CAS_ROUNDS}


async def test_wat_11_the_order_is_that_of_revisions_whatever_the_clocks_say(
    replicas: tuple[Store, Store], clocks: tuple[Clock, Clock]
) -> None:
    rng = random.Random(11)
    for n in range(20):
        clocks[n % 2].now_ms += rng.randint(-5, 5) * MINUTE_MS
        await replicas[n % 2].write([put("fs", n=n)], actor="ada")

    history = await replicas[1].history("server", "fs")
    assert [change.revision for change in history] == list(range(20, 0, -1))
    assert [change.after for change in history] == [{"n": n} for n in range(19, -1, -1)]
    assert sorted(change.at_ms for change in history) != [change.at_ms for change in reversed(history)]
    assert [batch.revision for batch in events(await read_watch(replicas[0], 0, upto=20))] == list(
        range(1, 21)
    )


async def test_wat_11_compaction_by_a_fast_clock_makes_no_hole(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    for n in range(6):
        await replicas[n % 2].write([put("fs", n=n)], actor="ada")
    compacted = await one.compact(keep_revisions=0, keep_ms=5 * MINUTE_MS)

    # The lines of the slow replica look old enough; only those before the first young one may go.
    assert compacted == 0
    assert await other.compact(keep_revisions=3, keep_ms=-60 * MINUTE_MS) == 3
    assert [batch.revision for batch in events(await read_watch(one, 3, upto=6))] == [4, 5, 6]


async def test_wat_3_compaction_at_one_is_compaction_at_all(replicas: tuple[Store, Store]) -> None:
    one, other = replicas
    for n in range(6):
        await one.write([put("fs", n=n)], actor="ada")
    await one.compact(keep_revisions=2, keep_ms=0)
    await other.write([put("fs", n=6)], actor="ada")

    # Until a replica has read the log again, it serves what it still holds in memory.
    async def read_until_compacted() -> None:
        while True:
            assert [batch.revision for batch in events(await read_watch(other, 3, upto=7))] == [4, 5, 6, 7]
            await asyncio.sleep(0.01)

    with pytest.raises(Compacted):
        await asyncio.wait_for(read_until_compacted(), DEADLINE_S)
    assert [batch.revision for batch in events(await read_watch(other, 4, upto=7))] == [5, 6, 7]


async def test_wat_4_a_watch_from_what_another_replica_listed_has_no_early_bookmark(
    replicas: tuple[Store, Store],
) -> None:
    one, other = replicas
    async with asyncio.timeout(DEADLINE_S):
        for n in range(20):
            listed = await one.write([put("fs", n=n)], actor="ada")
            async with other.watch(listed) as batches:
                assert await anext(batches) == ChangeBatch(revision=listed)


async def test_wat_10_a_record_made_again_at_another_replica_is_the_new_one(
    replicas: tuple[Store, Store],
) -> None:
    one, other = replicas
    await one.write([put("fs", generation=1)], actor="ada")
    await other.write([delete("fs")], actor="ada")
    await one.write([put("fs", if_revision=0, generation=2)], actor="ada")

    seen = events(await read_watch(other, 1, upto=3))

    assert [change.after for batch in seen for change in batch.changes] == [None, {"generation": 2}]
