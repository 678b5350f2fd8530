"""What every store remembers of invocations, and for how long."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.invocation_samples import ADA, SUCCESS, begin, claim_ids, found, light, line, make
from tests.contract.stores import DEADLINE_S, DURABLE_STORES, Clock, OpenStore
from toolgate.model.principals import Principal
from toolgate.registry.invocations import KEEP_ENDED_MS, InvocationProgress, QueueLimits
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


async def test_the_newest_are_listed_first_without_what_is_large(queue: Invocations) -> None:
    bob = Principal(id="key:bob", role="agent")
    await begin(queue, "1")
    await queue.report("1", 1, ending=SUCCESS)
    await make(queue, "2", task_id="deploy")
    await make(queue, "3", principal=bob, created_ms=1)
    everything = [light(await found(queue, one)) for one in "321"]

    assert list(await queue.list()) == everything
    assert everything[2].ending == replace(SUCCESS, stdout=b"", stderr=b"")
    assert list(await queue.list(task_id="review")) == [everything[0], everything[2]]
    assert list(await queue.list(principal_id=ADA.id)) == everything[1:]
    assert list(await queue.list(task_id="deploy", principal_id="key:bob")) == []


async def test_a_list_is_gone_through_page_by_page(queue: Invocations) -> None:
    await make(queue, *"abcde")
    pages, before = [], None
    while page := [one.invocation_id for one in await queue.list(before=before, limit=2)]:
        pages.append(page)
        before = page[-1]

    assert pages == [["e", "d"], ["c", "b"], ["a"]]
    assert list(await queue.list(before="unknown")) == []


async def test_what_ended_long_ago_is_forgotten_with_its_lines(
    queue: Invocations, lease_clock: Clock
) -> None:
    await begin(queue, "old", "young", "runs", idempotency_key=None)
    await queue.report("old", 1, lines=[line(1)], ending=SUCCESS)
    lease_clock.now_ms += 1
    await queue.report("young", 1, lines=[line(1)], ending=SUCCESS)
    await make(queue, "waits")
    await queue.forget(now_ms=lease_clock.now_ms + KEEP_ENDED_MS)

    assert [one.invocation_id for one in await queue.list()] == ["waits", "runs", "young"]
    assert list(await queue.lines("old")) == []
    assert len(await queue.lines("young")) == 1


async def test_a_new_invocation_has_no_lines_of_a_forgotten_one(queue: Invocations) -> None:
    await begin(queue, "a")
    await queue.report("a", 1, lines=[line(1)], ending=SUCCESS)
    await queue.forget(now_ms=10 * KEEP_ENDED_MS)
    await make(queue, "b")

    assert list(await queue.lines("b")) == []


@pytest.mark.parametrize("store_limits", [StoreLimits(queue=QueueLimits(keep_ended=2))])
async def test_the_oldest_of_too_many_ended_invocations_of_a_task_are_deleted(
    queue: Invocations, lease_clock: Clock
) -> None:
    await make(queue, "a1", "a2", "a3", task_id="a")
    await make(queue, "b1", "b2", task_id="b")
    for one in ("a1", "a2", "a3", "b1", "b2"):
        await queue.cancel(one)
    await make(queue, "a4", "a5", task_id="a")
    await queue.forget(now_ms=lease_clock.now_ms)

    assert [one.invocation_id for one in await queue.list()] == ["a5", "a4", "b2", "b1", "a3", "a2"]


async def test_who_waits_hears_of_each_change(queue: Invocations) -> None:
    async with asyncio.timeout(DEADLINE_S):
        seen = 0
        for change in (
            make(queue, "a"),
            claim_ids(queue),
            queue.report("a", 1, lines=[line(1)]),
            queue.cancel("a"),
            queue.report("a", 1, ending=SUCCESS),
        ):
            waiting = asyncio.ensure_future(queue.changed(seen))
            await change
            count = await waiting
            assert count > seen
            seen = count


async def test_invocations_are_no_part_of_the_registry(queue_store: Store, tmp_path: Path) -> None:
    await begin(queue_store.invocations, "a")
    exported = await queue_store.export(tmp_path / "export")

    assert (queue_store.revision, (await queue_store.list()).records) == (0, ())
    assert exported.revision == 0
    assert b"review" not in (tmp_path / "export").read_bytes()


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_invocations_survive_a_reopening(
    open_store: OpenStore, tmp_path: Path, lease_clock: Clock
) -> None:
    async with open_store(tmp_path, lease_clock) as store:
        await begin(store.invocations, "a")
        await store.invocations.report("a", 1, lines=[line(1)], ending=SUCCESS)
        await make(store.invocations, "b", input=b"\x00")
        before = [await store.invocations.get(one) for one in "ab"]
    async with open_store(tmp_path, lease_clock) as store:
        assert [await store.invocations.get(one) for one in "ab"] == before
        assert list(await store.invocations.lines("a")) == [line(1)]
        assert await claim_ids(store.invocations) == ["b"]


async def test_those_that_wait_are_counted(queue: Invocations) -> None:
    none = await queue.waiting()
    await begin(queue, "a")
    for invocation_id in ("b", "c"):
        await make(queue, invocation_id)

    assert (none, await queue.waiting()) == (0, 2)


async def test_how_far_several_have_come_is_seen_at_one_look(queue: Invocations) -> None:
    await begin(queue, "a")
    await queue.report("a", 1, lines=[line(1), line(2)])
    await make(queue, "b")

    assert await queue.marks({"a", "b", "none"}) == {
        "a": InvocationProgress("running", 1, 2),
        "b": InvocationProgress("queued", 0, 0),
    }
    assert await queue.marks([]) == {}
