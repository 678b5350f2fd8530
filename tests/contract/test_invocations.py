"""What every store does with invocations: the queue, its leases, and the history."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.contract.invocation_samples import (
    ADA,
    STOPPED,
    SUCCESS,
    begin,
    claim_ids,
    found,
    invocation,
    light,
    line,
    make,
)
from tests.contract.stores import DEADLINE_S, DURABLE_STORES, STORES, Clock, OpenStore
from toolgate.errors import Conflict, NotFound, QueueFull, StorageFailed
from toolgate.model.invocations import MAX_LOG_LINES, Ending
from toolgate.model.principals import Principal
from toolgate.registry.invocations import (
    KEEP_ENDED_MS,
    LEASE_MS,
    MAX_QUEUED,
    Invocations,
    Made,
)
from toolgate.registry.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Leases go by it, on every engine."""
    clock = Clock()

    def read_clock_ms(_connection: Connection) -> int:
        return clock()

    monkeypatch.setattr("toolgate.registry.postgresql.read_clock_ms", read_clock_ms)
    return clock


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def queue(store: Store) -> Invocations:
    return store.invocations


# Making them


async def test_an_invocation_is_read_back_whole(queue: Invocations) -> None:
    new = invocation("a", input=b"\x00\xff{", retries=2, idempotency_key="k")

    assert await queue.create(new) == Made(new, is_new=True)
    assert await queue.get("a") == new
    assert await queue.get("b") is None


async def test_the_same_key_again_is_the_same_invocation(queue: Invocations) -> None:
    await queue.create(invocation("a", idempotency_key="k"))
    await claim_ids(queue)
    again = await queue.create(invocation("b", idempotency_key="k", created_ms=2_000))

    assert again == Made(await found(queue, "a"), is_new=False)
    assert await queue.get("b") is None


async def test_a_key_with_other_input_is_refused(queue: Invocations) -> None:
    await queue.create(invocation("a", idempotency_key="k"))

    with pytest.raises(Conflict):
        await queue.create(invocation("b", idempotency_key="k", input=b"other"))


async def test_a_key_counts_for_one_principal_and_one_task(queue: Invocations) -> None:
    bob = Principal(id="key:bob", role="agent")
    await queue.create(invocation("a", idempotency_key="k"))
    others = [
        invocation("b", idempotency_key="k", principal=bob),
        invocation("c", "deploy", idempotency_key="k"),
        invocation("d", idempotency_key="other"),
        invocation("e"),
        invocation("f"),
    ]

    assert [(await queue.create(other)).is_new for other in others] == [True] * 5


async def test_a_full_queue_takes_no_more_but_knows_its_keys(
    queue: Invocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.registry.invocation_steps.MAX_QUEUED", 3)
    await queue.create(invocation("a", idempotency_key="k"))
    await make(queue, "b", "c")

    with pytest.raises(QueueFull):
        await make(queue, "d")
    assert not (await queue.create(invocation("e", idempotency_key="k"))).is_new
    await claim_ids(queue, 1)
    await make(queue, "f")
    assert MAX_QUEUED == 1_000


# Taking them


async def test_what_is_claimed_runs_on_its_node_under_a_lease(queue: Invocations, clock: Clock) -> None:
    new = invocation("a", input=b"x" * 100_000)
    await queue.create(new)
    (claimed,) = await queue.claim("n1", limit=5)

    assert claimed == replace(
        new, state="running", attempt=1, node_id="n1", lease_until_ms=clock.now_ms + LEASE_MS
    )
    assert await queue.get("a") == claimed
    assert await claim_ids(queue) == []


async def test_no_more_is_claimed_than_asked_for_and_the_oldest_first(queue: Invocations) -> None:
    ids = [f"{n:02}" for n in range(12, 0, -1)]
    await make(queue, *ids)

    assert [await claim_ids(queue, 5) for _ in range(4)] == [ids[:5], ids[5:10], ids[10:], []]
    assert await claim_ids(queue, 0) == []


async def test_tasks_with_the_least_running_come_first(queue: Invocations) -> None:
    await make(queue, "a1", "a2", "a3", "a4", task_id="a")
    first = await claim_ids(queue, 2)
    await make(queue, "b1", "b2", "b3", task_id="b")
    await make(queue, "c1", task_id="c")

    assert first == ["a1", "a2"]
    # `a` has two running: `b` and `c` come before, until `b` has as many.
    assert await claim_ids(queue, 3) == ["b1", "c1", "b2"]
    assert await claim_ids(queue, 3) == ["a3", "b3", "a4"]


async def test_what_has_ended_does_not_count_against_its_task(queue: Invocations) -> None:
    await begin(queue, "a1", task_id="a")
    await queue.report("a1", 1, ending=SUCCESS)
    await make(queue, "a2", task_id="a")
    await make(queue, "b1", task_id="b")

    assert await claim_ids(queue) == ["a2", "b1"]


async def test_a_claimer_that_waits_is_woken_by_what_is_made(queue: Invocations) -> None:
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.ensure_future(queue.claim("n1", limit=1, wait_s=3_600))
        await asyncio.sleep(0)
        await make(queue, "a")

        assert [one.invocation_id for one in await waiting] == ["a"]


async def test_a_claimer_that_waits_in_vain_gets_nothing(queue: Invocations) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert list(await queue.claim("n1", limit=1, wait_s=0.01)) == []


async def test_a_claimer_that_waits_sees_a_lease_end(
    queue: Invocations, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.registry.invocation_steps.LOOK_AGAIN_S", 0.01)
    await begin(queue, "a", retries=1)
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.ensure_future(queue.claim("n2", limit=1, wait_s=3_600))
        await asyncio.sleep(0)
        clock.now_ms += LEASE_MS + 1
        (claimed,) = await waiting

    assert (claimed.invocation_id, claimed.attempt, claimed.node_id) == ("a", 2, "n2")


async def test_closing_the_store_ends_the_waiting(store: Store) -> None:
    waiting = [
        asyncio.ensure_future(store.invocations.changed(1_000)),
        asyncio.ensure_future(store.invocations.claim("n1", limit=1, wait_s=3_600)),
    ]
    await asyncio.sleep(0)
    await store.aclose()

    async with asyncio.timeout(DEADLINE_S):
        for one in waiting:
            with pytest.raises(StorageFailed):
                await one


# Leases


async def test_a_report_renews_the_lease(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a")
    for _ in range(3):
        clock.now_ms += LEASE_MS
        assert await queue.report("a", 1) == "go_on"
        assert await claim_ids(queue) == []

    assert (await found(queue, "a")).lease_until_ms == clock.now_ms + LEASE_MS


async def test_one_whose_node_was_lost_has_crashed(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a")
    clock.now_ms += LEASE_MS
    await claim_ids(queue)
    assert (await found(queue, "a")).state == "running"
    clock.now_ms += 1
    assert await claim_ids(queue) == []
    lost = await found(queue, "a")

    assert (lost.state, lost.ended_ms, lost.lease_until_ms) == ("crashed", clock.now_ms, None)
    assert lost.ending is not None
    assert (lost.ending.state, lost.ending.ended_by) == ("crashed", "node_lost")
    assert "`n1`" in lost.ending.message


async def test_a_retry_is_another_attempt_and_there_are_no_more_than_the_task_says(
    queue: Invocations, clock: Clock
) -> None:
    await make(queue, "a", retries=2)
    attempts = []
    for _ in range(5):
        for one in await queue.claim("n1", limit=1):
            attempts.append(one.attempt)
            assert await queue.report("a", one.attempt) == "go_on"
        clock.now_ms += LEASE_MS + 1

    assert attempts == [1, 2, 3]
    assert (await found(queue, "a")).state == "crashed"


async def test_what_never_began_goes_back_without_a_retry(queue: Invocations, clock: Clock) -> None:
    await make(queue, "a")
    for attempt in range(1, 4):
        (claimed,) = await queue.claim(f"n{attempt}", limit=1)
        assert (claimed.attempt, claimed.started_ms) == (attempt, None)
        clock.now_ms += LEASE_MS + 1
    (claimed,) = await queue.claim("n4", limit=1)
    assert await queue.report("a", claimed.attempt) == "go_on"
    clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)

    assert (await found(queue, "a")).state == "crashed"


async def test_one_that_was_to_be_cancelled_is_not_begun_again(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a", retries=3)
    await queue.cancel("a")
    clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    ended = await found(queue, "a")

    assert (ended.state, ended.ending and ended.ending.ended_by) == ("cancelled", "cancelled")


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_a_store_that_comes_back_gives_nodes_time_to_be_heard(
    open_store: OpenStore, tmp_path: Path, clock: Clock
) -> None:
    async with open_store(tmp_path, clock) as store:
        await begin(store.invocations, "a", "b")
        await make(store.invocations, "c")
    clock.now_ms += 10 * LEASE_MS
    async with open_store(tmp_path, clock) as store:
        queue = store.invocations
        assert await claim_ids(queue) == ["c"]
        clock.now_ms += LEASE_MS - 1
        assert await queue.report("a", 1) == "go_on"
        clock.now_ms += 1
        await claim_ids(queue)

        states = [(await found(queue, one)).state for one in "abc"]
        assert states == ["running", "crashed", "running"]


# Reports


async def test_an_ending_is_kept_whole_and_does_not_change(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a")
    clock.now_ms += 1_500
    assert await queue.report("a", 1, ending=SUCCESS) == "go_on"
    ended = await found(queue, "a")
    failure = Ending(state="failed", ended_by="trap")

    assert (ended.state, ended.ending, ended.ended_ms) == ("succeeded", SUCCESS, clock.now_ms)
    assert (ended.started_ms, ended.lease_until_ms) == (clock.now_ms - 1_500, None)
    assert await queue.report("a", 1, lines=[line(1)], ending=failure) == "lost"
    assert await queue.cancel("a") == ended
    clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    assert await queue.get("a") == ended
    assert list(await queue.lines("a")) == []


async def test_only_the_newest_attempt_is_heard(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a", retries=1)
    assert await queue.report("nobody", 1) == "lost"
    assert await queue.report("a", 2) == "lost"
    clock.now_ms += LEASE_MS + 1
    await claim_ids(queue, 0)
    # Queued again: that attempt has nothing to say any more.
    assert await queue.report("a", 1, ending=SUCCESS) == "lost"
    (again,) = await queue.claim("n2", limit=1)
    before = await found(queue, "a")
    assert await queue.report("a", 1, lines=[line(1)], ending=SUCCESS) == "lost"

    assert await queue.get("a") == before == again
    assert list(await queue.lines("a")) == []
    assert await queue.report("a", 2, ending=SUCCESS) == "go_on"


async def test_lines_are_numbered_over_all_attempts_and_heard_once(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "a", retries=1)
    await queue.report("a", 1, lines=[line(0), line(1)])
    await queue.report("a", 1, lines=[line(0), line(1), line(2)])
    clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    await queue.report("a", 2, lines=[line(0, "again: \x00 é")])
    await queue.report("a", 2, lines=[line(1)], ending=SUCCESS)
    texts = ["line 0", "line 1", "line 2", "again: \x00 é", "line 1"]

    assert list(await queue.lines("a")) == [line(n, text) for n, text in enumerate(texts, start=1)]
    assert [one.seq for one in await queue.lines("a", after=2, limit=2)] == [3, 4]
    assert list(await queue.lines("a", after=5)) == []
    assert list(await queue.lines("nobody")) == []


async def test_of_a_long_log_the_newest_lines_are_kept(queue: Invocations) -> None:
    await begin(queue, "a", "b")
    await queue.report("b", 1, lines=[line(1)])
    half = MAX_LOG_LINES // 2
    for start in range(0, 5 * half, half):
        await queue.report("a", 1, lines=[line(n) for n in range(start, start + half)])
    kept = [one.seq for one in await queue.lines("a")]
    await queue.report("a", 1, lines=[line(n) for n in range(10**6, 10**6 + MAX_LOG_LINES + 5)])

    assert kept == list(range(3 * half + 1, 5 * half + 1))
    assert [one.text for one in await queue.lines("a")][:1] == [f"line {10**6 + 5}"]
    assert len(await queue.lines("a")) == MAX_LOG_LINES
    assert len(await queue.lines("b")) == 1


async def test_a_run_whose_node_stops_is_begun_again_where_a_retry_is_left(queue: Invocations) -> None:
    await begin(queue, "a", retries=1)
    assert await queue.report("a", 1, lines=[line(1)], ending=STOPPED) == "go_on"
    queued = await found(queue, "a")
    (again,) = await queue.claim("n2", limit=1)
    await queue.report("a", 2, ending=STOPPED)
    ended = await found(queue, "a")

    assert (queued.state, queued.node_id, queued.ending, queued.ended_ms) == ("queued", "", None, None)
    assert again.attempt == 2
    assert (ended.state, ended.ending) == ("crashed", STOPPED)


# Cancelling


async def test_one_that_waits_is_cancelled_at_once(queue: Invocations, clock: Clock) -> None:
    await make(queue, "a")
    cancelled = await queue.cancel("a")

    assert (cancelled.state, cancelled.ended_ms, cancelled.is_cancel_asked) == (
        "cancelled",
        clock.now_ms,
        True,
    )
    assert cancelled == await queue.get("a")
    assert await claim_ids(queue) == []


async def test_the_node_of_one_that_runs_is_told_to_end_it(queue: Invocations) -> None:
    await begin(queue, "a")
    asked = await queue.cancel("a")

    assert (asked.state, asked.is_cancel_asked, asked.input) == ("running", True, b"{}")
    assert await queue.report("a", 1) == "cancel"
    assert await queue.report("a", 1, lines=[line(1)]) == "cancel"
    await queue.report("a", 1, ending=Ending(state="cancelled", ended_by="cancelled"))
    assert (await found(queue, "a")).state == "cancelled"


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        pytest.param(SUCCESS, ("succeeded", "exit"), id="it had ended by itself"),
        pytest.param(
            Ending(state="failed", ended_by="deadline"), ("failed", "deadline"), id="a limit ended it"
        ),
        pytest.param(STOPPED, ("cancelled", "cancelled"), id="its node stops"),
        pytest.param(
            Ending(state="cancelled", ended_by="revoked"), ("cancelled", "cancelled"), id="its key is revoked"
        ),
    ],
)
async def test_an_ending_that_comes_with_a_cancellation(
    queue: Invocations, ending: Ending, expected: tuple[str, str]
) -> None:
    await begin(queue, "a", retries=1)
    await queue.cancel("a")
    await queue.report("a", 1, ending=ending)
    ended = await found(queue, "a")

    assert ended.ending is not None
    assert (ended.state, ended.ending.ended_by) == expected
    assert (ended.ending.state, ended.ending.stdout) == (ended.state, ending.stdout)


async def test_what_is_not_there_cannot_be_cancelled(queue: Invocations) -> None:
    with pytest.raises(NotFound):
        await queue.cancel("nobody")


# The history


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
    assert list(await queue.list(before="nobody")) == []


async def test_what_ended_long_ago_is_forgotten_with_its_lines(queue: Invocations, clock: Clock) -> None:
    await begin(queue, "old", "young", "runs", idempotency_key=None)
    await queue.report("old", 1, lines=[line(1)], ending=SUCCESS)
    clock.now_ms += 1
    await queue.report("young", 1, lines=[line(1)], ending=SUCCESS)
    await make(queue, "waits")
    await queue.forget(now_ms=clock.now_ms + KEEP_ENDED_MS)

    assert [one.invocation_id for one in await queue.list()] == ["waits", "runs", "young"]
    assert list(await queue.lines("old")) == []
    assert len(await queue.lines("young")) == 1


async def test_what_a_task_has_too_many_of_is_forgotten(
    queue: Invocations, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("memory_invocations", "invocation_tables"):
        monkeypatch.setattr(f"toolgate.registry.{module}.KEEP_ENDED", 2)
    await make(queue, "a1", "a2", "a3", task_id="a")
    await make(queue, "b1", "b2", task_id="b")
    for one in ("a1", "a2", "a3", "b1", "b2"):
        await queue.cancel(one)
    await make(queue, "a4", "a5", task_id="a")
    await queue.forget(now_ms=clock.now_ms)

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


async def test_invocations_are_no_part_of_the_registry(store: Store, tmp_path: Path) -> None:
    await begin(store.invocations, "a")
    exported = await store.export(tmp_path / "export")

    assert (store.revision, (await store.list()).records) == (0, ())
    assert exported.revision == 0
    assert b"review" not in (tmp_path / "export").read_bytes()


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_invocations_survive_a_reopening(open_store: OpenStore, tmp_path: Path, clock: Clock) -> None:
    async with open_store(tmp_path, clock) as store:
        await begin(store.invocations, "a")
        await store.invocations.report("a", 1, lines=[line(1)], ending=SUCCESS)
        await make(store.invocations, "b", input=b"\x00")
        before = [await store.invocations.get(one) for one in "ab"]
    async with open_store(tmp_path, clock) as store:
        assert [await store.invocations.get(one) for one in "ab"] == before
        assert list(await store.invocations.lines("a")) == [line(1)]
        assert await claim_ids(store.invocations) == ["b"]
