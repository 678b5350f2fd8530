"""What every store does, whatever it is made of. A new store is a new line in `stores.STORES`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stores import DURABLE_STORES, STORES, Clock, OpenStore, delete, put, read_watch
from toolgate.errors import Compacted, Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.model.principals import IntegrationChoice, make_choice_id
from toolgate.model.revisions import RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.replication.state import watch_registry
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, clock) as opened:
        yield opened


@pytest.fixture(params=DURABLE_STORES)
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    return DURABLE_STORES[request.param]


# Records and revisions


async def test_an_empty_store_is_at_revision_0_and_lists_nothing(store: Store) -> None:
    assert store.revision == 0
    assert await store.list() == RecordList(epoch=store.epoch, revision=0, records=())
    assert await store.get("server", "fs") is None
    assert await store.history("server", "fs") == []


@pytest.mark.requirement("002-087")
async def test_a_write_is_one_revision_and_is_read_back_whole(store: Store, clock: Clock) -> None:
    body: dict[str, Any] = {
        "text": "é\u2028",
        "n": 1,
        "f": 1.5,
        "yes": True,
        "none": None,
        "list": [1, {"a": []}],
    }

    assert await store.write([put("fs", **body)], actor="ada") == 1
    assert await store.get("server", "fs") == StoredRecord(
        kind="server", id="fs", body=body, revision=1, updated_at_ms=clock.now_ms, actor="ada"
    )
    assert store.revision == 1


async def test_a_transaction_of_many_records_is_one_revision(store: Store) -> None:
    await store.write([put("b"), put("a"), put("a", kind="task")], actor="ada")

    listing = await store.list()
    assert [(stored.kind, stored.id, stored.revision) for stored in listing.records] == [
        ("server", "a", 1),
        ("server", "b", 1),
        ("task", "a", 1),
    ]
    assert [stored.id for stored in (await store.list("task")).records] == ["a"]
    assert (await store.list("key")).records == ()


async def test_ids_are_sorted_by_code_point_whatever_the_engine_thinks(store: Store) -> None:
    await store.write([put(name, kind="task") for name in ("b", "B", "a", "_", "a-b", "a.b")], actor="ada")

    assert [stored.id for stored in (await store.list()).records] == ["B", "_", "a", "a-b", "a.b", "b"]


async def test_a_later_change_to_the_written_dict_changes_nothing(store: Store) -> None:
    body: dict[str, Any] = {"tags": ["a"]}
    await store.write([RecordWrite(kind="server", id="fs", body=body)], actor="ada")
    body["tags"].append("b")

    stored = await store.get("server", "fs")
    assert stored is not None
    assert stored.body == {"tags": ["a"]}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"x": float("nan")}, id="NaN"),
        pytest.param({"x": float("inf")}, id="infinity"),
        pytest.param({"x": "\ud800"}, id="lone surrogate"),
        pytest.param({"x": b"bytes"}, id="bytes"),
        pytest.param({"x": {1, 2}}, id="a set"),
    ],
)
async def test_what_is_not_json_is_refused_and_nothing_is_written(store: Store, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        await store.write([put("ok"), RecordWrite(kind="server", id="fs", body=body)], actor="ada")

    assert (store.revision, (await store.list()).records) == (0, ())


async def test_one_transaction_cannot_write_a_record_twice(store: Store) -> None:
    with pytest.raises(InvalidRecord):
        await store.write([put("fs", n=1), put("fs", n=2)], actor="ada")

    assert store.revision == 0


# Preconditions


async def test_adm_12_a_stale_revision_is_a_conflict_and_changes_nothing(store: Store) -> None:
    await store.write([put("fs", n=1)], actor="ada")
    await store.write([put("fs", n=2)], actor="ada")
    before = await store.list()

    with pytest.raises(Conflict):
        await store.write([put("fs", if_revision=1, n=3)], actor="bob")
    with pytest.raises(Conflict):
        await store.write([delete("fs", if_revision=1)], actor="bob")
    assert await store.list() == before
    assert await store.write([put("fs", if_revision=2, n=3)], actor="bob") == 3


async def test_if_revision_0_means_must_not_exist(store: Store) -> None:
    assert await store.write([put("fs", if_revision=0)], actor="ada") == 1

    with pytest.raises(Conflict):
        await store.write([put("fs", if_revision=0, n=1)], actor="ada")
    with pytest.raises(Conflict):
        await store.write([put("other", if_revision=1)], actor="ada")


async def test_deleting_what_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.write([put("kept"), delete("fs")], actor="ada")

    assert (await store.list()).records == ()


async def test_one_failed_precondition_undoes_the_whole_transaction(store: Store) -> None:
    await store.write([put("a"), put("b")], actor="ada")
    before = await store.list()

    with pytest.raises(Conflict):
        await store.write([put("a", n=1), delete("b"), put("c", if_revision=7)], actor="ada")
    assert await store.list() == before
    assert await store.history("server", "c") == []


async def test_a_write_may_depend_on_the_whole_store(store: Store) -> None:
    await store.write([put("a")], actor="ada")

    with pytest.raises(Conflict):
        await store.write([put("b")], actor="ada", if_store_revision=0)
    assert await store.write([put("b")], actor="ada", if_store_revision=1) == 2


async def test_a_write_that_changes_nothing_mints_no_revision(store: Store, clock: Clock) -> None:
    await store.write([put("fs", a=1, b=[2])], actor="ada")
    before = await store.list()
    clock.now_ms += 1

    assert await store.write([RecordWrite(kind="server", id="fs", body={"b": [2], "a": 1})], actor="bob") == 1
    assert await store.write([], actor="bob") == 1
    assert await store.list() == before
    with pytest.raises(Conflict):
        await store.write([put("fs", if_revision=9, a=1, b=[2])], actor="bob")


async def test_a_number_and_a_truth_value_are_not_the_same_body(store: Store) -> None:
    await store.write([put("fs", n=1)], actor="ada")

    assert await store.write([put("fs", n=True)], actor="ada") == 2


async def test_sto_6_eight_writers_of_one_counter_lose_no_step(store: Store) -> None:
    rounds, writers = 25, 8
    await store.write([put("n", count=0)], actor="ada")

    async def count_up() -> list[int]:
        won: list[int] = []
        while len(won) < rounds:
            stored = await store.get("server", "n")
            assert stored is not None
            try:
                count = stored.body["count"] + 1
                won.append(await store.write([put("n", if_revision=stored.revision, count=count)], actor="w"))
            except Conflict:
                await asyncio.sleep(0)
        return won

    won = await asyncio.gather(*(count_up() for _ in range(writers)))

    assert sorted(revision for each in won for revision in each) == list(range(2, rounds * writers + 2))
    stored = await store.get("server", "n")
    assert stored is not None
    assert stored.body == {"count": rounds * writers}


# History


async def test_history_tells_who_changed_what_and_when_newest_first(store: Store, clock: Clock) -> None:
    await store.write([put("fs", n=1), put("other")], actor="ada")
    clock.now_ms += 5
    await store.write([put("fs", n=2)], actor="bob")
    await store.write([delete("fs")], actor="eve")

    history = await store.history("server", "fs", limit=2)

    assert list(history) == [
        RecordChange(
            revision=3,
            kind="server",
            id="fs",
            operation="delete",
            actor="eve",
            at_ms=clock.now_ms,
            before={"n": 2},
            after=None,
        ),
        RecordChange(
            revision=2,
            kind="server",
            id="fs",
            operation="put",
            actor="bob",
            at_ms=clock.now_ms,
            before={"n": 1},
            after={"n": 2},
        ),
    ]
    assert [change.revision for change in await store.history("server", "fs")] == [3, 2, 1]


async def test_sto_7_history_is_in_the_order_of_revisions_whatever_the_clock_does(
    store: Store, clock: Clock
) -> None:
    day_ms = 24 * 60 * 60 * 1000
    clock.now_ms = 10 * day_ms
    for n, jump in enumerate((0, day_ms, -2 * day_ms, day_ms)):
        clock.now_ms += jump
        await store.write([put("fs", n=n)], actor="ada")

    history = await store.history("server", "fs")
    assert [(change.revision, change.after) for change in history] == [
        (n + 1, {"n": n}) for n in range(3, -1, -1)
    ]
    assert [change.at_ms // day_ms for change in history] == [10, 9, 11, 10]


async def test_one_transaction_may_carry_the_work_of_several_actors(store: Store) -> None:
    await store.write([put("a"), RecordWrite(kind="server", id="b", body={}, actor="bob")], actor="ada")

    assert [(stored.id, stored.actor) for stored in (await store.list()).records] == [
        ("a", "ada"),
        ("b", "bob"),
    ]
    assert [change.actor for change in await store.history("server", "b")] == ["bob"]


@pytest.mark.requirement("002-020")
async def test_what_a_caller_chose_reaches_every_follower_and_goes_when_it_is_reset(store: Store) -> None:
    choice_id = make_choice_id("oidc:ada@example.com")
    body: Any = {"principal": "oidc:ada@example.com", "servers": {"fs": "read_only", "git": "off"}}
    choice = IntegrationChoice(
        choice_id=choice_id, principal="oidc:ada@example.com", servers={"fs": "read_only", "git": "off"}
    )
    async with aclosing(watch_registry(store)) as states:
        before = await anext(states)
        await store.write([put(choice_id, kind="choice", choice_id=choice_id, **body)], actor="ada")
        chosen = await anext(states)
        await store.write([delete(choice_id, kind="choice")], actor="ada")
        after = await anext(states)

    assert (before.choices, after.choices) == ({}, {})
    assert chosen.choices == {choice_id: choice}


async def test_history_ends_where_the_log_was_compacted(store: Store, clock: Clock) -> None:
    for n in range(5):
        await store.write([put("fs", n=n)], actor="ada")
    await store.compact(keep_revisions=2, keep_ms=0)

    assert [change.revision for change in await store.history("server", "fs")] == [5, 4]
    stored = await store.get("server", "fs")
    assert stored is not None
    assert (stored.revision, stored.actor) == (5, "ada")


# Compaction


async def test_compaction_keeps_enough_revisions_and_enough_time(store: Store, clock: Clock) -> None:
    for n in range(10):
        clock.now_ms += 1_000
        await store.write([put("fs", n=n)], actor="ada")

    assert await store.compact() == 0
    assert await store.compact(keep_revisions=3, keep_ms=60_000) == 0
    assert await store.compact(keep_revisions=100, keep_ms=0) == 0
    assert await store.compact(keep_revisions=3, keep_ms=4_500) == 5
    assert await store.compact(keep_revisions=3, keep_ms=0) == 7
    assert await store.compact(keep_revisions=8, keep_ms=0) == 7
    assert await store.compact(keep_revisions=0, keep_ms=0) == 10


# What only a durable store can show


async def test_everything_survives_a_reopening(open_store: OpenStore, tmp_path: Path, clock: Clock) -> None:
    async with open_store(tmp_path, clock) as store:
        for n in range(5):
            await store.write([put("fs", n=n), put(f"s{n}")], actor="ada")
        await store.compact(keep_revisions=3, keep_ms=0)
        epoch, listing, history = store.epoch, await store.list(), await store.history("server", "fs")

    async with open_store(tmp_path, clock) as store:
        assert (store.epoch, store.revision) == (epoch, 5)
        assert (await store.list(), await store.history("server", "fs")) == (listing, history)
        with pytest.raises(Compacted):
            async with store.watch(1):
                pass
        assert [batch.revision for batch in await read_watch(store, 2, upto=5)] == [3, 4, 5, 5]
        assert await store.write([put("fs", n=99)], actor="ada") == 6


async def test_another_store_has_another_epoch(open_store: OpenStore, tmp_path: Path, clock: Clock) -> None:
    async with open_store(tmp_path / "a", clock) as one, open_store(tmp_path / "b", clock) as other:
        assert one.epoch != other.epoch


async def test_a_closed_store_refuses_to_work(open_store: OpenStore, tmp_path: Path, clock: Clock) -> None:
    async with open_store(tmp_path, clock) as store:
        await store.aclose()

        with pytest.raises(StorageFailed):
            await store.write([put("fs")], actor="ada")
        with pytest.raises(StorageFailed):
            await store.list()
