"""The watch over REST: server-sent events with the guarantees every watch has."""

import asyncio
import random
from dataclasses import replace

import pytest

from tests.contract.stores import delete, put, read_watch
from tests.contract.watch_guarantees import broken_guarantees, events
from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_events import Event, batch_of, open_events
from tests.surfaces.rest_world import (
    NOW_MS,
    RestWorld,
    error_of,
    listening,
    open_rest,
    secret_of,
    stdio,
    task,
)
from toolgate.gateway.auth.identity import credential_lapsed
from toolgate.govern.watches import RegistryWatch, RegistryWatches
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.registry.store import WATCH_BUFFER

pytestmark = pytest.mark.anyio

WATCH = "/admin/api/watch"


async def write(world: RestWorld, *writes: RecordWrite) -> int:
    return await world.store.write(writes, actor="ada")


async def test_wat_6_a_watch_starts_replays_bookmarks_and_goes_live() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git")], task=[task("review")])
        async with open_events(world.api, f"{WATCH}?since=1") as stream:
            replayed = await stream.read(3)
            await write(world, delete("git"), put("web"))
            live = await stream.read(1)

    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-store, no-transform"
    digests = {one.revision: one.digest for one in await read_watch(world.store, 1, upto=3)}
    received = [one.data.pop("digest", None) for one in (*replayed, *live)]
    assert received == [None, digests[2], digests[2], digests[3]]
    assert [*replayed, *live] == [
        Event("start", {"epoch": world.store.epoch, "revision": 1}),
        Event(
            "change",
            {
                "revision": 2,
                "upserts": [{"kind": "server", "id": "git"}, {"kind": "task", "id": "review"}],
                "deletes": [],
            },
            2,
        ),
        Event("bookmark", {"revision": 2}, 2),
        Event(
            "change",
            {
                "revision": 3,
                "upserts": [{"kind": "server", "id": "web"}],
                "deletes": [{"kind": "server", "id": "git"}],
            },
            3,
        ),
    ]


async def test_without_a_revision_a_watch_begins_now() -> None:
    async with open_rest() as world, open_events(world.api, WATCH) as stream:
        begun = await stream.read(2)

    assert [(one.name, one.data["revision"]) for one in begun] == [("start", 1), ("bookmark", 1)]


async def test_the_last_event_id_says_where_to_go_on_whatever_the_url_says() -> None:
    async with open_rest() as world:
        for n in range(3):
            await write(world, put("git", n=n))
        async with open_events(world.api, f"{WATCH}?since=1", last_id=3) as stream:
            resumed = await stream.read(3)

    assert [(one.name, one.id) for one in resumed] == [("start", None), ("change", 4), ("bookmark", 4)]


async def test_wat_4_a_watch_ahead_of_the_registry_is_asked_to_list_again() -> None:
    async with open_rest() as world:
        response = await world.request("GET", f"{WATCH}?since={world.store.revision + 1}")

    assert error_of(response) == (410, "compacted")


async def test_wat_12_a_watch_is_resumed_only_in_the_history_it_saw() -> None:
    async with open_rest() as world:
        since, digest = world.store.revision, world.store.digest
        await write(world, put("git"))
        resumed = await world.request("GET", f"{WATCH}?since={since}&digest={digest}")
        refused = await world.request("GET", f"{WATCH}?since={since}&digest={'0' * 64}")

    assert resumed.status_code == 200
    assert error_of(refused) == (410, "compacted")


async def test_wat_3_what_is_too_old_or_of_another_history_is_refused_before_the_stream_begins() -> None:
    async with open_rest() as world:
        for n in range(6):
            await write(world, put("git", n=n))
        await world.store.compact(keep_revisions=2, keep_ms=0)
        old = await world.request("GET", f"{WATCH}?since=3")
        foreign = await world.request("GET", f"{WATCH}?since=6&epoch=other")
        own = await world.request("GET", f"{WATCH}?since=6&epoch={world.store.epoch}")

    assert [error_of(one) for one in (old, foreign)] == [(410, "compacted")] * 2
    assert own.status_code == 200


async def test_wat_5_a_reader_that_is_too_slow_gets_an_error_and_the_others_are_not_affected() -> None:
    async with (
        open_rest() as world,
        open_events(world.api, WATCH) as slow,
        open_events(world.api, WATCH) as fast,
    ):
        await slow.read(2)
        await fast.read(2)
        seen = []
        for n in range(WATCH_BUFFER + 3):
            await write(world, put("git", n=n))
            seen += await fast.read(1)
        last = [event async for event in slow][-1]

    assert (last.name, last.data["code"]) == ("error", "watch_lagged")
    assert [one.id for one in seen] == list(range(2, WATCH_BUFFER + 5))


async def test_a_revision_that_holds_nothing_for_the_reader_is_a_bookmark() -> None:
    """Of keys only administrators hear, and of secrets no one, whatever they ask for."""
    async with open_rest() as world:
        secret = RecordWrite(kind="secret", id="session", body={"secret_id": "session", "hex": "00" * 32})
        await world.seed(key=[{"key_id": "new", "role": "agent", "sha256": "0" * 64}])
        await write(world, secret)
        url = f"{WATCH}?since=1"
        async with (
            open_events(world.api, url, key=secret_of("viewer")) as viewer,
            open_events(world.api, url, key=secret_of("admin")) as admin,
            open_events(world.api, f"{url}&kinds=server,task") as narrow,
        ):
            seen = [[(one.name, one.id) for one in await each.read(3)] for each in (viewer, admin, narrow)]
        refused = [
            await world.request("GET", f"{WATCH}?kinds={kinds}", key=secret_of("viewer"))
            for kinds in ("key", "secret", "server,nothing", "")
        ]

    hidden = [("start", None), ("bookmark", 2), ("bookmark", 3)]
    assert seen == [hidden, [("start", None), ("change", 2), ("bookmark", 3)], hidden]
    assert [error_of(one)[0] for one in refused] == [403, 400, 400, 400]


async def test_a_stream_ends_with_the_key_it_was_opened_with() -> None:
    async with open_rest() as world:
        async with (
            open_events(world.api, WATCH, key=secret_of("viewer")) as revoked,
            open_events(world.api, WATCH, key=secret_of("admin")) as kept,
        ):
            await revoked.read(2)
            await kept.read(2)
            await world.request("DELETE", "/admin/api/keys/viewer", key=secret_of("admin"))
            received = [event async for event in revoked]
            more = await kept.read(1)

        assert received[-1].data["code"] == "unauthenticated"
        assert [one.name for one in more] == ["change"]
        assert len(world.control.watches) == 0


async def test_shutting_down_ends_every_stream_and_lets_no_new_one_last() -> None:
    async with open_rest() as world:
        async with open_events(world.api, WATCH) as stream:
            await stream.read(2)
            world.control.watches.close()
            rest = [event async for event in stream]
        async with open_events(world.api, WATCH) as late:
            begun = [event.name async for event in late]

    assert rest == []
    assert begun == ["start"]


async def test_a_principal_has_only_so_many_watches_and_closing_one_makes_room() -> None:
    async with open_rest(watches=RegistryWatches(most=2)) as world:
        async with open_events(world.api, WATCH), open_events(world.api, WATCH):
            full = await world.request("GET", WATCH)
            other = await world.request("GET", WATCH, key=secret_of("viewer"))
        again = await world.request("GET", WATCH)
        head = await world.request("HEAD", WATCH)

        assert error_of(full) == (503, "session_limit")
        assert [one.status_code for one in (other, again, head)] == [200, 200, 200]
        assert len(world.control.watches) == 0


async def test_silence_is_broken_by_a_sign_of_life_and_loses_nothing() -> None:
    store, watch = MemoryStore(lambda: NOW_MS), RegistryWatch(is_over=False)
    async with asyncio.timeout(60), store.watch(0) as batches:
        seen = [await watch.next(batches, within_s=0.001) for _ in range(3)]
        await store.write([put("git")], actor="ada")
        found = await watch.next(batches, within_s=60)

    assert seen == [ChangeBatch(revision=0), None, None]
    assert found is not None
    assert found.revision == 1


async def test_a_watch_may_be_ended_while_it_is_ending_and_by_its_store() -> None:
    store, watch, reason = MemoryStore(lambda: NOW_MS), RegistryWatch(is_over=False), credential_lapsed()
    async with asyncio.timeout(60), store.watch(0) as batches:
        await anext(batches)
        loop = asyncio.get_running_loop()

        def end_twice() -> None:
            watch.end(reason)
            loop.call_soon(watch.end)

        loop.call_soon(end_twice)
        ended = await watch.next(batches, within_s=60)
        other = RegistryWatch(is_over=False)
        loop.call_soon(lambda: asyncio.ensure_future(store.aclose()))
        closed = await other.next(batches, within_s=60)

    assert (ended, watch.is_over, watch.reason) == (None, True, reason)
    assert (closed, other.is_over, other.reason) == (None, True, None)


def light(write: RecordWrite) -> RecordWrite:
    """A write as far as a light event tells of it."""
    return replace(write, body=None if write.body is None else {})


async def follow(world: RestWorld, since: int, last: int, rng: random.Random) -> list[ChangeBatch]:
    """A reader that goes away now and then, to come back with the id of the last event it got."""
    seen: list[ChangeBatch] = []
    cursor = since
    while cursor < last:
        async with open_events(world.api, f"{WATCH}?kinds=server", last_id=cursor) as stream:
            async for event in stream:
                if event.name == "start":
                    continue
                assert event.id is not None
                assert event.name != "error"
                seen.append(batch_of(event))
                cursor = event.id
                if cursor >= last or rng.random() < 0.05:
                    break
    return seen


async def test_wat_1_wat_7_wat_9_every_guarantee_holds_and_the_sequence_is_that_of_the_store() -> None:
    rng, committed = random.Random(7), dict[int, list[RecordWrite]]()
    async with open_rest() as world:
        first = world.store.revision

        async def traffic() -> None:
            alive: set[str] = set()
            for n in range(400):
                ids = sorted(rng.sample([f"s{m}" for m in range(12)], rng.randint(1, 5)))
                writes = [
                    delete(one) if one in alive and rng.random() < 0.4 else put(one, nonce=n) for one in ids
                ]
                alive |= {one.id for one in writes if one.body is not None}
                alive -= {one.id for one in writes if one.body is None}
                committed[await write(world, *writes)] = [light(one) for one in writes]
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(follow(world, first, first + 400, rng)) for _ in range(4)]
            group.create_task(traffic())
        seen = [reader.result() for reader in readers]

        assert [broken_guarantees(one, committed, since=first) for one in seen] == [[]] * 4
        async with world.store.watch(first) as batches:
            in_process = [await anext(batches) for _ in range(400)]
    received = [[(change.id, change.operation) for change in batch.changes] for batch in in_process]
    for one in seen:
        assert [
            [(change.id, change.operation) for change in batch.changes] for batch in events(one)
        ] == received


# Over our own listener


REQUEST = b"GET /admin/api/watch HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_events_leave_one_by_one_and_stopping_ends_the_stream_properly() -> None:
    async with open_rest() as world:
        async with listening(world) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            await reader.readuntil(b"event: bookmark")
            await write(world, put("git"))
            received = await reader.readuntil(b"event: change")
        ended = await reader.read()
        writer.close()

    assert b"id: 2\n" in received
    assert ended.endswith(b"0\r\n\r\n")


async def test_who_asks_for_the_head_alone_gets_it_and_can_go_on() -> None:
    async with open_rest() as world, listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST.replace(b"GET", b"HEAD") + REQUEST.replace(b"/admin/api/watch", b"/healthz"))
        first = await reader.readuntil(b"\r\n\r\n")
        second = await reader.readuntil(b"\r\n\r\n")
        writer.close()

        assert first.startswith(b"HTTP/1.1 200")
        assert second.startswith(b"HTTP/1.1 200")
        assert len(world.control.watches) == 0


async def test_a_reader_that_hangs_up_leaves_nothing_behind() -> None:
    async with open_rest() as world, listening(world) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await reader.readuntil(b"event: bookmark")
        open_before = len(world.control.watches)
        writer.close()
        while len(world.control.watches):
            await asyncio.sleep(0)

        assert open_before == 1
