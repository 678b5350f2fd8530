"""Watching over gRPC keeps every promise of the store's own watch, and adds a sign of life."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from tests.contract.watch_guarantees import broken_guarantees, events
from tests.registry.memory_store import MemoryStore
from tests.surfaces.grpc.grpc_world import SERVERS, GrpcWorld, batch_of, open_grpc_world, refusal_of
from tests.surfaces.rest_world import secret_of, stdio, task
from toolgate.errors import StorageUnavailable
from toolgate.govern.watches import filter_batch
from toolgate.model.revisions import ChangeBatch, Kind, RecordWrite
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import node_pb2
from toolgate.registry.replication.sync import DEFAULT_LIMITS, HistoryPosition
from toolgate.registry.store import WATCH_BUFFER
from toolgate.surfaces.grpc.collection import BOOKMARK_S, watch_batches

pytestmark = pytest.mark.anyio

LIGHT: Final = f"{SERVERS}/WatchMcpServers"
FULL: Final = "toolgate.v1.NodeService/WatchRecords"
DEADLINE_S: Final = 240
Watch = Callable[[GrpcWorld, int], Any]


def watch_lightly(world: GrpcWorld, since: int, epoch: str = "") -> Any:
    request = sms.WatchMcpServersRequest(since_revision=since, epoch=epoch)
    return world.stream(LIGHT, request, key=secret_of("node"), timeout_s=DEADLINE_S)


def watch_fully(world: GrpcWorld, since: int, epoch: str = "") -> Any:
    request = node_pb2.WatchRecordsRequest(since_revision=since, epoch=epoch)
    return world.stream(FULL, request, key=secret_of("node"), timeout_s=DEADLINE_S)


WATCHES: Final = pytest.mark.parametrize("watch", [watch_lightly, watch_fully])


def put(kind: Kind, record_id: str, nonce: float = 0) -> RecordWrite:
    if kind == "server":
        return RecordWrite(
            kind=kind, id=record_id, body=stdio(record_id, enabled=False, display_name=str(nonce))
        )
    return RecordWrite(kind=kind, id=record_id, body=task(record_id) | {"display_name": str(nonce)})


async def read(call: Any, count: int) -> list[ChangeBatch]:
    return [batch_of(await call.read()) for _ in range(count)]


def outline(batches: list[ChangeBatch]) -> list[tuple[int, list[str]]]:
    return [(one.revision, [change.id for change in one.changes]) for one in batches]


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await exhaust(call)
    return refusal_of(caught.value)


async def exhaust(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@pytest.mark.requirement("002-068")
@WATCHES
async def test_wat_6_a_watch_replays_then_bookmarks_then_goes_live(watch: Watch) -> None:
    async with open_grpc_world() as world:
        start = world.store.revision
        for name in ("a", "b"):
            await world.store.write([put("server", name)], actor="test")
        call = watch(world, start)
        replayed = await read(call, 3)
        await world.store.write([RecordWrite(kind="server", id="a", body=None)], actor="test")
        (live,) = await read(call, 1)
        call.cancel()

    assert outline([*replayed, live]) == [
        (start + 1, ["a"]),
        (start + 2, ["b"]),
        (start + 2, []),
        (start + 3, ["a"]),
    ]
    assert live.changes[0].operation == "delete"


async def test_a_transaction_without_servers_is_not_sent_to_those_who_watch_servers() -> None:
    async with open_grpc_world() as world:
        start = world.store.revision
        call = watch_lightly(world, start)
        await read(call, 1)
        await world.store.write([put("task", "t")], actor="test")
        await world.store.write([put("task", "t", 1), put("server", "a")], actor="test")
        (live,) = await read(call, 1)
        call.cancel()

    assert outline([live]) == [(start + 2, ["a"])]


@WATCHES
async def test_wat_3_a_watch_from_before_the_compaction_says_to_list_again(watch: Watch) -> None:
    async with open_grpc_world() as world:
        for n in range(6):
            await world.store.write([put("server", "a", n)], actor="test")
        await world.store.compact(keep_revisions=2, keep_ms=0)

        assert await refused(watch(world, 3)) == ("FAILED_PRECONDITION", "compacted")
        newest = world.store.revision
        assert outline(await read(watch(world, newest - 1), 2)) == [(newest, ["a"]), (newest, [])]


@pytest.mark.parametrize("watch", [watch_lightly, watch_fully])
async def test_a_watch_of_another_epoch_says_to_list_again(watch: Any) -> None:
    async with open_grpc_world() as world:
        now = world.store.revision

        assert await refused(watch(world, now, "another")) == ("FAILED_PRECONDITION", "compacted")
        assert outline(await read(watch(world, now, world.store.epoch), 1)) == [(now, [])]


@WATCHES
async def test_wat_4_a_watch_from_the_future_sees_nothing_older_and_no_early_bookmark(watch: Watch) -> None:
    async with open_grpc_world() as world:
        start = world.store.revision
        call = watch(world, start + 3)
        for n in range(5):
            await world.store.write([put("server", "a", n)], actor="test")
        seen = await read(call, 3)
        call.cancel()

    # It may have begun before the writes or after them: the bookmark is where the replay ended.
    assert [change.id for batch in seen for change in batch.changes] == ["a", "a"]
    assert [one.revision for one in events(seen)] == [start + 4, start + 5]
    assert min(one.revision for one in seen if not one.changes) >= start + 3


async def test_wat_5_a_reader_that_does_not_read_is_cut_off_and_costs_the_others_nothing() -> None:
    # A window of fixed size: what the client takes in unread is no affair of the gateway's.
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 64 * 1024))
    async with (
        open_grpc_world() as world,
        grpc.aio.insecure_channel(world.address, options=narrow) as channel,
    ):
        start = world.store.revision
        slow = watch_fully(GrpcWorld(world.rest, world.address, channel), start)
        fast = watch_fully(world, start)
        assert outline(await read(slow, 1)) == outline(await read(fast, 1)) == [(start, [])]
        for n in range(WATCH_BUFFER + 200):
            body = stdio("a", enabled=False, stdio={"args": ["x" * 2_000, str(n)]})
            await world.store.write([RecordWrite(kind="server", id="a", body=body)], actor="test")
            assert [one.revision for one in await read(fast, 1)] == [start + n + 1]

        assert await refused(slow) == ("ABORTED", "watch_lagged")
        fast.cancel()


async def traffic(world: GrpcWorld, rng: random.Random, *, transactions: int) -> dict[int, list[RecordWrite]]:
    """Random transactions over several kinds, as their writer knows them."""
    committed: dict[int, list[RecordWrite]] = {}
    alive: set[tuple[Kind, str]] = set()
    names: list[tuple[Kind, str]] = [("server", f"s{n}") for n in range(8)] + [
        ("task", f"t{n}") for n in range(8)
    ]
    for _ in range(transactions):
        chosen = rng.sample(names, rng.randint(1, 5))
        writes = [
            RecordWrite(kind=kind, id=name, body=None)
            if (kind, name) in alive and rng.random() < 0.4
            else put(kind, name, rng.random())
            for kind, name in chosen
        ]
        for write in writes:
            (alive.discard if write.body is None else alive.add)((write.kind, write.id))
        committed[await world.store.write(writes, actor="traffic")] = writes
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    return committed


async def follow(
    open_watch: Callable[[int], Any], since: int, last: int, rng: random.Random
) -> list[ChangeBatch]:
    """A watcher that hangs up now and then, to resume from what it has."""
    seen: list[ChangeBatch] = []
    cursor = since
    while cursor < last:
        call = open_watch(cursor)
        while cursor < last and rng.random() > 0.02:
            batch = batch_of(await call.read())
            seen.append(batch)
            cursor = batch.revision
        call.cancel()
    return seen


async def follow_store(world: GrpcWorld, since: int, last: int) -> list[ChangeBatch]:
    seen = []
    async with world.store.watch(since) as batches:
        async for batch in batches:
            seen.append(batch)
            if batch.revision >= last:
                break
    return seen


def essence(batches: list[ChangeBatch]) -> list[Any]:
    """What a watcher was told, without what only the log knows."""
    return [
        (one.revision, [(change.kind, change.id, change.after) for change in one.changes])
        for one in events(batches)
    ]


@pytest.mark.parametrize("seed", [1, 2])
async def test_wat_1_wat_7_wat_9_every_watcher_gets_every_guarantee_and_the_same_sequence(seed: int) -> None:
    transactions, rng = 400, random.Random(seed)
    async with open_grpc_world() as world:
        start = world.store.revision
        committed = await traffic(world, rng, transactions=20)
        last = start + 20 + transactions

        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            store = group.create_task(follow_store(world, start, last))
            full = [
                group.create_task(follow(lambda cursor: watch_fully(world, cursor), since, last, rng))
                for since in (start, start + 7, start + 20)
            ]
            light = group.create_task(collect_light(world, start, last))
            committed |= await traffic(world, rng, transactions=transactions)
            await world.store.write([put("server", "end")], actor="test")

    assert [
        broken_guarantees(one.result(), committed, since=since)
        for one, since in zip(full, (start, start + 7, start + 20), strict=True)
    ] == [[]] * 3
    assert essence(full[0].result()) == essence(store.result())
    servers: tuple[Kind, ...] = ("server",)
    received = [filter_batch(one, servers) for one in store.result()]
    assert light_essence(light.result()) == light_essence(received)


async def collect_light(world: GrpcWorld, since: int, last: int) -> list[ChangeBatch]:
    call = watch_lightly(world, since)
    seen: list[ChangeBatch] = []
    while not seen or seen[-1].revision <= last:
        seen.append(batch_of(await call.read()))
    call.cancel()
    return seen[:-1]


def light_essence(batches: list[ChangeBatch]) -> list[Any]:
    return [
        (one.revision, {(change.id, change.operation) for change in one.changes}) for one in events(batches)
    ]


# The sign of life


async def narrowed(store: MemoryStore, kind: Kind | None) -> AsyncIterator[ChangeBatch]:
    async for batch in watch_batches(store, HistoryPosition("", 0), kind=kind, idle_s=0.001):
        yield batch


async def test_an_idle_watch_is_shown_that_it_is_current() -> None:
    store = MemoryStore(lambda: 0)
    await store.write([put("server", "a")], actor="test")
    async with asyncio.timeout(DEADLINE_S):
        batches = narrowed(store, "server")
        seen = [await anext(batches) for _ in range(4)]
        await store.write([put("server", "b")], actor="test")
        while not (batch := await anext(batches)).changes:
            pass

    assert outline(seen) == [(1, ["a"]), (1, []), (1, []), (1, [])]
    assert outline([batch]) == [(2, ["b"])]


class CutOffStore(MemoryStore):
    """A store that may have lost its database."""

    is_cut_off = False

    @property
    def is_current(self) -> bool:
        return not self.is_cut_off


async def test_rep_2_a_watch_ends_rather_than_say_that_it_is_current_where_no_one_knows() -> None:
    store = CutOffStore(lambda: 0)
    async with asyncio.timeout(DEADLINE_S):
        batches = narrowed(store, None)
        first = await anext(batches)
        store.is_cut_off = True
        await store.write([put("server", "a")], actor="test")
        change = await anext(batches)
        with pytest.raises(StorageUnavailable):
            await anext(batches)
        with pytest.raises(StorageUnavailable):
            await anext(narrowed(store, "task"))

    assert outline([first, change]) == [(0, []), (1, ["a"])]


async def test_what_one_does_not_watch_moves_the_bookmark() -> None:
    store = MemoryStore(lambda: 0)
    async with asyncio.timeout(DEADLINE_S):
        batches = narrowed(store, "server")
        first = await anext(batches)
        for n in range(5):
            await store.write([put("task", "t", n)], actor="test")
        while (batch := await anext(batches)).revision < 5:
            assert not batch.changes

    assert outline([first, batch]) == [(0, []), (5, [])]


async def test_a_store_that_closes_ends_the_watch() -> None:
    store = MemoryStore(lambda: 0)
    await store.aclose()

    assert [batch async for batch in watch_batches(store, HistoryPosition("", 0))] == [
        ChangeBatch(revision=0)
    ]


def test_a_node_that_hears_nothing_for_two_bookmarks_gives_up() -> None:
    assert DEFAULT_LIMITS.silence_s >= 2 * BOOKMARK_S
