"""What every store does with the queue of invocations, and the leases under which nodes have them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.invocation_samples import (
    STOPPED,
    SUCCESS,
    begin,
    claim_ids,
    found,
    invocation,
    line,
    make,
)
from tests.contract.stores import DEADLINE_S, DURABLE_STORES, Clock, OpenStore
from tests.registry.memory_store import MemoryInvocations
from toolgate.errors import Conflict, NotFound, QueueFull, StorageFailed, StorageUnavailable
from toolgate.model.invocations import MAX_LINE_BYTES, MAX_LOG_BYTES, MAX_LOG_LINES, InvocationResult
from toolgate.model.principals import Principal
from toolgate.registry.invocations import LEASE_MS, InvocationCreation, QueueLimits
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio


# Making them


async def test_an_invocation_is_read_back_whole(queue: Invocations) -> None:
    new = invocation("a", input=b"\x00\xff{", retries=2, idempotency_key="k")

    assert await queue.create(new) == InvocationCreation(new, is_new=True)
    assert await queue.get("a") == new
    assert await queue.get("b") is None


async def test_the_same_key_again_is_the_same_invocation(queue: Invocations) -> None:
    await queue.create(invocation("a", idempotency_key="k"))
    await claim_ids(queue)
    again = await queue.create(invocation("b", idempotency_key="k", created_ms=2_000))

    assert again == InvocationCreation(await found(queue, "a"), is_new=False)
    assert await queue.get("b") is None


async def test_a_key_with_other_input_is_refused(queue: Invocations) -> None:
    await queue.create(invocation("a", idempotency_key="k"))

    with pytest.raises(Conflict):
        await queue.create(invocation("b", idempotency_key="k", input=b"other"))


async def test_an_id_is_given_once(queue: Invocations) -> None:
    await make(queue, "a")

    with pytest.raises(Conflict):
        await queue.create(invocation("a", "deploy", idempotency_key="k"))
    assert await queue.get("a") == invocation("a")
    await make(queue, "b")


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


@pytest.mark.parametrize("store_limits", [StoreLimits(queue=QueueLimits(max_queued=3))])
async def test_a_full_queue_refuses_new_invocations_and_knows_its_keys(queue: Invocations) -> None:
    await queue.create(invocation("a", idempotency_key="k"))
    await make(queue, "b", "c")

    with pytest.raises(QueueFull):
        await make(queue, "d")
    assert not (await queue.create(invocation("e", idempotency_key="k"))).is_new
    await claim_ids(queue, 1)
    await make(queue, "f")


# Taking them


async def test_what_is_claimed_runs_on_its_node_under_a_lease(queue: Invocations, lease_clock: Clock) -> None:
    new = invocation("a", input=b"x" * 100_000)
    await queue.create(new)
    (claimed,) = await queue.claim("n1", limit=5)

    assert claimed == replace(
        new, state="running", attempt=1, node_id="n1", lease_until_ms=lease_clock.now_ms + LEASE_MS
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


@pytest.mark.parametrize("store_limits", [StoreLimits(queue=QueueLimits(poll_s=0.01))])
async def test_a_claimer_that_waits_sees_a_lease_expire(queue: Invocations, lease_clock: Clock) -> None:
    await begin(queue, "a", retries=1)
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.ensure_future(queue.claim("n2", limit=1, wait_s=3_600))
        await asyncio.sleep(0)
        lease_clock.now_ms += LEASE_MS + 1
        (claimed,) = await waiting

    assert (claimed.invocation_id, claimed.attempt, claimed.node_id) == ("a", 2, "n2")


async def test_closing_the_store_ends_the_waiting(queue_store: Store) -> None:
    waiting = [
        asyncio.ensure_future(queue_store.invocations.changed(1_000)),
        asyncio.ensure_future(queue_store.invocations.claim("n1", limit=1, wait_s=3_600)),
    ]
    await asyncio.sleep(0)
    await queue_store.aclose()

    async with asyncio.timeout(DEADLINE_S):
        for one in waiting:
            with pytest.raises(StorageFailed):
                await one


# Leases


async def test_a_report_renews_the_lease(queue: Invocations, lease_clock: Clock) -> None:
    await begin(queue, "a")
    for _ in range(3):
        lease_clock.now_ms += LEASE_MS
        assert await queue.report("a", 1) == "go_on"
        assert await claim_ids(queue) == []

    assert (await found(queue, "a")).lease_until_ms == lease_clock.now_ms + LEASE_MS


async def test_one_whose_node_was_lost_has_crashed(queue: Invocations, lease_clock: Clock) -> None:
    await begin(queue, "a")
    lease_clock.now_ms += LEASE_MS
    await claim_ids(queue)
    assert (await found(queue, "a")).state == "running"
    lease_clock.now_ms += 1
    assert await claim_ids(queue) == []
    lost = await found(queue, "a")

    assert (lost.state, lost.ended_ms, lost.lease_until_ms) == ("crashed", lease_clock.now_ms, None)
    assert lost.ending is not None
    assert (lost.ending.state, lost.ending.ended_by) == ("crashed", "node_lost")
    assert "`n1`" in lost.ending.message


async def test_a_retry_is_another_attempt_and_there_are_no_more_than_the_task_says(
    queue: Invocations, lease_clock: Clock
) -> None:
    await make(queue, "a", retries=2)
    attempts = []
    for _ in range(5):
        for one in await queue.claim("n1", limit=1):
            attempts.append(one.attempt)
            assert await queue.report("a", one.attempt) == "go_on"
        lease_clock.now_ms += LEASE_MS + 1

    assert attempts == [1, 2, 3]
    assert (await found(queue, "a")).state == "crashed"


async def test_what_never_began_goes_back_without_a_retry(queue: Invocations, lease_clock: Clock) -> None:
    await make(queue, "a")
    for attempt in range(1, 4):
        (claimed,) = await queue.claim(f"n{attempt}", limit=1)
        assert (claimed.attempt, claimed.started_ms) == (attempt, None)
        lease_clock.now_ms += LEASE_MS + 1
    (claimed,) = await queue.claim("n4", limit=1)
    assert await queue.report("a", claimed.attempt) == "go_on"
    lease_clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)

    assert (await found(queue, "a")).state == "crashed"


async def test_one_that_was_to_be_cancelled_is_not_begun_again(
    queue: Invocations, lease_clock: Clock
) -> None:
    await begin(queue, "a", retries=3)
    await queue.cancel("a")
    lease_clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    ended = await found(queue, "a")

    assert (ended.state, ended.ending and ended.ending.ended_by) == ("cancelled", "cancelled")


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_a_store_that_comes_back_gives_nodes_time_to_report(
    open_store: OpenStore, tmp_path: Path, lease_clock: Clock
) -> None:
    async with open_store(tmp_path, lease_clock) as store:
        await begin(store.invocations, "a", "b")
        await make(store.invocations, "c")
    lease_clock.now_ms += 10 * LEASE_MS
    async with open_store(tmp_path, lease_clock) as store:
        queue = store.invocations
        assert await claim_ids(queue) == ["c"]
        lease_clock.now_ms += LEASE_MS - 1
        assert await queue.report("a", 1) == "go_on"
        lease_clock.now_ms += 1
        await claim_ids(queue)

        states = [(await found(queue, one)).state for one in "abc"]
        assert states == ["running", "crashed", "running"]


async def test_after_an_outage_of_the_database_nodes_have_a_lease_to_report(lease_clock: Clock) -> None:
    failures: list[StorageUnavailable] = []

    def read_clock_ms() -> int:
        if failures:
            raise failures.pop()
        return lease_clock.now_ms

    queue = MemoryInvocations(read_clock_ms)
    await begin(queue, "a")
    lease_clock.now_ms += 10 * LEASE_MS
    failures.append(StorageUnavailable("it is away"))
    with pytest.raises(StorageUnavailable):
        await queue.claim("n1", limit=1)
    states = []
    for passed_ms in (0, LEASE_MS - 1, 1):
        lease_clock.now_ms += passed_ms
        await claim_ids(queue)
        states.append((await found(queue, "a")).state)

    assert states == ["running", "running", "crashed"]


# Reports


async def test_an_ending_is_kept_whole_and_does_not_change(queue: Invocations, lease_clock: Clock) -> None:
    await begin(queue, "a")
    lease_clock.now_ms += 1_500
    assert await queue.report("a", 1, ending=SUCCESS) == "go_on"
    ended = await found(queue, "a")
    failure = InvocationResult(state="failed", ended_by="trap")

    assert (ended.state, ended.ending, ended.ended_ms) == ("succeeded", SUCCESS, lease_clock.now_ms)
    assert (ended.started_ms, ended.lease_until_ms) == (lease_clock.now_ms - 1_500, None)
    assert await queue.report("a", 1, lines=[line(1)], ending=failure) == "lost"
    assert await queue.cancel("a") == ended
    lease_clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    assert await queue.get("a") == ended
    assert list(await queue.lines("a")) == []


async def test_only_reports_of_the_newest_attempt_count(queue: Invocations, lease_clock: Clock) -> None:
    await begin(queue, "a", retries=1)
    assert await queue.report("unknown", 1) == "lost"
    assert await queue.report("a", 2) == "lost"
    lease_clock.now_ms += LEASE_MS + 1
    await claim_ids(queue, 0)
    # Queued again: that attempt has nothing to say any more.
    assert await queue.report("a", 1, ending=SUCCESS) == "lost"
    (again,) = await queue.claim("n2", limit=1)
    before = await found(queue, "a")
    assert await queue.report("a", 1, lines=[line(1)], ending=SUCCESS) == "lost"

    assert await queue.get("a") == before == again
    assert list(await queue.lines("a")) == []
    assert await queue.report("a", 2, ending=SUCCESS) == "go_on"


async def test_lines_are_numbered_over_all_attempts_and_stored_once(
    queue: Invocations, lease_clock: Clock
) -> None:
    await begin(queue, "a", retries=1)
    await queue.report("a", 1, lines=[line(0), line(1)])
    await queue.report("a", 1, lines=[line(0), line(1), line(2)])
    lease_clock.now_ms += LEASE_MS + 1
    await claim_ids(queue)
    await queue.report("a", 2, lines=[line(0, "again: \x00 é")])
    await queue.report("a", 2, lines=[line(1)], ending=SUCCESS)
    texts = ["line 0", "line 1", "line 2", "again: \x00 é", "line 1"]

    assert list(await queue.lines("a")) == [line(n, text) for n, text in enumerate(texts, start=1)]
    assert [one.seq for one in await queue.lines("a", after=2, limit=2)] == [3, 4]
    assert list(await queue.lines("a", after=5)) == []
    assert list(await queue.lines("unknown")) == []


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


async def test_of_a_log_with_long_lines_no_more_than_a_mebibyte_is_kept(queue: Invocations) -> None:
    await begin(queue, "a")
    for start in range(0, 300, 100):
        await queue.report("a", 1, lines=[line(n, "x" * MAX_LINE_BYTES) for n in range(start, start + 100)])

    assert [one.seq for one in await queue.lines("a")] == list(
        range(301 - MAX_LOG_BYTES // MAX_LINE_BYTES + 1, 301)
    )
    await queue.report("a", 1, lines=[line(300, "the last")])
    assert len(await queue.lines("a")) == MAX_LOG_BYTES // MAX_LINE_BYTES


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


async def test_one_that_waits_is_cancelled_at_once(queue: Invocations, lease_clock: Clock) -> None:
    await make(queue, "a")
    cancelled = await queue.cancel("a")

    assert (cancelled.state, cancelled.ended_ms, cancelled.is_cancel_asked) == (
        "cancelled",
        lease_clock.now_ms,
        True,
    )
    assert cancelled == await queue.get("a")
    assert await claim_ids(queue) == []


async def test_the_node_of_a_running_invocation_is_notified_to_end_it(queue: Invocations) -> None:
    await begin(queue, "a")
    asked = await queue.cancel("a")

    assert (asked.state, asked.is_cancel_asked, asked.input) == ("running", True, b"{}")
    assert await queue.report("a", 1) == "cancel"
    assert await queue.report("a", 1, lines=[line(1)]) == "cancel"
    await queue.report("a", 1, ending=InvocationResult(state="cancelled", ended_by="cancelled"))
    assert (await found(queue, "a")).state == "cancelled"


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        pytest.param(SUCCESS, ("succeeded", "exit"), id="it had ended by itself"),
        pytest.param(
            InvocationResult(state="failed", ended_by="deadline"),
            ("failed", "deadline"),
            id="a limit ended it",
        ),
        pytest.param(STOPPED, ("cancelled", "cancelled"), id="its node stops"),
        pytest.param(
            InvocationResult(state="cancelled", ended_by="revoked"),
            ("cancelled", "cancelled"),
            id="its key is revoked",
        ),
    ],
)
async def test_an_ending_that_comes_with_a_cancellation(
    queue: Invocations, ending: InvocationResult, expected: tuple[str, str]
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
        await queue.cancel("unknown")
