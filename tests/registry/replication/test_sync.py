"""How a node follows control, and what it does without."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.registry.control_play import MemoryControl
from tests.registry.following import delete, following, listed, server, write
from tests.registry.memory_store import MemoryStore
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import Unauthenticated
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.model.tools import Pin
from toolgate.registry.replication.sync import DEFAULT_LIMITS, Backoff, SyncStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0, epoch="first")


@pytest.fixture
def control(store: MemoryStore) -> MemoryControl:
    return MemoryControl(store)


@pytest.mark.requirement("002-071")
async def test_a_node_lists_and_then_has_one_state_for_each_transaction(
    store: MemoryStore, control: MemoryControl
) -> None:
    await store.write([server("fs")], actor="ada")

    async with following(control) as node:
        await write(store, server("git"), delete("fs"))
        await write(store, server("time"))

        assert [sorted(state.servers) for state in node.states] == [["fs"], ["git"], ["git", "time"]]
        assert node.state == await listed(store)
        assert (node.status.revision, node.status.epoch, node.status.is_degraded) == (3, "first", False)
    assert (len(control.lists_s), [since for _, since in control.watches]) == (1, [1])


async def test_rep_3_without_control_a_node_starts_not_ready_and_keeps_trying_ever_more_slowly(
    store: MemoryStore, control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    control.go()

    async with following(control) as node:
        await pass_time(60)
        early = (node.status, list(node.states))
        tried_s = list(control.lists_s)
        control.come_back()
        await pass_time(11)

        assert node.status.is_degraded is False
        assert node.state == await listed(store)
    assert early == (
        SyncStatus(
            is_degraded=True,
            last_error="nothing listens there",
            code="control_unavailable",
            revision=0,
            epoch="",
            last_contact_s=None,
            relists=0,
        ),
        [],
    )
    waits = [round(later - earlier, 3) for earlier, later in pairwise(tried_s)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "degraded, nothing to serve",
        "the control plane is available again; serving revision 0",
    ]


@pytest.mark.requirement("002-076")
async def test_rep_3_while_control_is_away_the_last_state_stays_and_then_all_is_caught_up(
    store: MemoryStore, control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(control) as node:
        await write(store, server("fs"))
        control.go()
        await store.write([server("git")], actor="ada")
        await pass_time(300)
        away = (node.status.is_degraded, node.status.last_error, sorted(node.state.servers))
        control.come_back()
        await pass_time(11)

        assert away == (True, "nothing listens there", ["fs"])
        assert node.state == await listed(store)
        assert node.status.is_degraded is False
    assert len([one for one in caplog.records if "degraded" in one.getMessage()]) == 1
    assert control.watches[-1][1] == store.revision  # listed once it was back, and watched from there


@pytest.mark.requirement("002-073")
async def test_watches_that_cannot_be_started_are_tried_ever_more_slowly(control: MemoryControl) -> None:
    async with following(control):
        control.watch_failure = Unauthenticated("the key is unknown, revoked or expired")
        control.cut()
        await pass_time(600)

    assert len(control.watches) < 70


async def test_another_cause_is_logged_again(
    control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    control.go()
    async with following(control) as node:
        await pass_time(30)
        control.go(Unauthenticated("the key is unknown, revoked or expired"))
        await pass_time(30)

        assert node.status.last_error == "the key is unknown, revoked or expired"
    assert [record.getMessage().split("; ")[0] for record in caplog.records] == [
        "degraded, nothing to serve: nothing listens there",
        "degraded, nothing to serve: the key is unknown, revoked or expired",
    ]


async def test_wat_2_a_line_that_breaks_every_few_events_costs_nothing_but_time(
    store: MemoryStore, control: MemoryControl
) -> None:
    async with following(control, jitter=0.5) as node:
        for n in range(200):
            await write(store, server(f"s{n % 7}", display_name=str(n)), server(f"t{n % 5}", tags=[f"n{n}"]))
            if n % 11 == 10:
                await write(store, delete(f"s{n % 7}"))
            if n % 3 == 2:
                control.cut()
        await pass_time(30)

        assert node.state == await listed(store)
        revisions = [state.revision for state in node.states]
        assert revisions == list(range(store.revision + 1))
        assert (node.status.relists, node.status.is_degraded) == (0, False)
    assert len(control.lists_s) == 1


async def test_a_watch_that_breaks_and_is_taken_up_again_is_no_cause_for_alarm(
    control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(control) as node:
        for _ in range(10):
            await pass_time(2)
            control.cut()
            await pass_time(0.1)
            assert node.status.is_degraded is False

    assert caplog.records == []


@pytest.mark.parametrize("apart_s", [1.5, 0.01])
async def test_rep_2_after_a_dropped_watch_a_change_arrives_within_two_seconds(
    store: MemoryStore, control: MemoryControl, apart_s: float
) -> None:
    async with following(control) as node:
        for n in range(20):
            await pass_time(apart_s)
            control.cut()
            await write(store, server("fs", display_name=str(n)))
            await pass_time(1.0)

            assert node.state == await listed(store)


@pytest.mark.requirement("002-074")
async def test_wat_3_a_node_behind_the_compacted_log_lists_once_after_a_moment_of_its_own(
    store: MemoryStore, control: MemoryControl, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(control, jitter=0.5) as node:
        control.go()
        for n in range(5):
            await store.write([server("fs", display_name=str(n))], actor="ada")
        await store.compact(keep_revisions=0, keep_ms=0)
        control.come_back()
        control.lists_s.clear()
        await pass_time(60)
        control.cut()
        await pass_time(60)

        assert node.state == await listed(store)
        assert node.status.relists == 1
    compacted_s = control.watches[-3][0]
    assert [round(at_s - compacted_s, 3) for at_s in control.lists_s] == [0.5]


async def test_wat_10_a_record_deleted_and_made_again_meanwhile_is_the_new_one(
    store: MemoryStore, control: MemoryControl
) -> None:
    async with following(control) as node:
        await write(store, server("fs", display_name="old", tags=["a"]))
        control.go()
        await store.write([delete("fs")], actor="ada")
        await store.write([server("fs", display_name="new")], actor="ada")
        control.come_back()
        await pass_time(11)

        assert node.state.servers["fs"].display_name == "new"
        assert node.state.servers["fs"].tags == ()


async def test_another_epoch_is_another_history_whatever_its_revisions_say(
    store: MemoryStore, control: MemoryControl
) -> None:
    await store.write([server("fs")], actor="ada")
    await store.write([server("git")], actor="ada")
    other = MemoryStore(lambda: 0, epoch="second")
    await other.write([server("time")], actor="ada")

    async with following(control) as node:
        control.store = other
        control.cut()
        await pass_time(11)
        await write(other, server("fetch"))

        assert node.state == await listed(other)
        assert (node.status.epoch, node.status.relists) == ("second", 1)


async def test_a_control_that_was_put_back_and_has_moved_past_this_node_is_listed_again(
    store: MemoryStore, control: MemoryControl
) -> None:
    await store.write([server("kept")], actor="ada")
    restored = MemoryStore(lambda: 0, epoch="first")
    await restored.write([server("kept")], actor="ada")

    async with following(control) as node:
        await write(store, server("undone"))
        control.go()
        for server_id in ("one", "two", "three"):
            await restored.write([server(server_id)], actor="ada")
        await pass_time(5)
        control.store = restored
        control.come_back()
        await pass_time(11)

        assert sorted(node.state.servers) == ["kept", "one", "three", "two"]
        assert node.status.is_degraded is False


async def test_an_older_revision_of_the_same_history_is_not_believed_at_once(
    store: MemoryStore, control: MemoryControl
) -> None:
    for n in range(5):
        await store.write([server("fs", display_name=str(n))], actor="ada")
    restored = MemoryStore(lambda: 0, epoch="first")
    await restored.write([server("old")], actor="ada")

    async with following(control, jitter=0.1) as node:
        control.store = restored
        control.cut()
        await pass_time(8)
        early = (sorted(node.state.servers), node.status.is_degraded, node.status.last_error)
        await pass_time(20)

        assert early == (["fs"], True, "the control plane is at revision 1, this node already at 5")
        assert node.state == await listed(restored)
        assert node.status.is_degraded is False


async def test_a_silent_watch_is_given_up_and_a_quiet_one_is_not(control: MemoryControl) -> None:
    async with following(control) as node:
        await pass_time(100)
        quiet = (len(control.watches), node.status.last_contact_s, node.contacts)
        control.is_mute = True
        control.cut()
        await pass_time(25)

        assert quiet == (1, 100.0, 22)
        assert node.status.is_degraded is True
        assert node.status.last_error == "the control plane was silent for 10 s"
        control.is_mute = False
        await pass_time(25)
        assert node.status.is_degraded is False


async def test_what_is_replayed_does_not_prove_the_state_current_before_it_is_over(
    store: MemoryStore, control: MemoryControl
) -> None:
    async with following(control) as node:
        contacts, seen = node.contacts, []

        def noted(batch: ChangeBatch) -> ChangeBatch:
            seen.append((batch.revision, len(batch.changes), node.contacts - contacts))
            return batch

        control.edit = noted
        control.cut()
        for server_id in ("fs", "git", "time"):
            await store.write([server(server_id)], actor="ada")
        await pass_time(11)

        assert seen[:4] == [(1, 1, 0), (2, 1, 0), (3, 1, 0), (3, 0, 0)]
        assert node.contacts > contacts


async def test_a_revision_that_is_skipped_is_cause_to_list(
    store: MemoryStore, control: MemoryControl
) -> None:
    def skipping(batch: ChangeBatch) -> ChangeBatch:
        return replace(batch, revision=0, changes=()) if batch.revision == 2 else batch

    control.edit = skipping
    async with following(control) as node:
        for server_id in ("fs", "git", "time"):
            await write(store, server(server_id))
        await pass_time(5)

        assert node.state == await listed(store)
        assert node.status.relists == 1


async def test_a_bookmark_of_what_was_not_delivered_is_cause_to_list(
    store: MemoryStore, control: MemoryControl
) -> None:
    def emptied(batch: ChangeBatch) -> ChangeBatch:
        return replace(batch, changes=())

    async with following(control) as node:
        control.edit = emptied
        await write(store, server("fs"))
        await pass_time(2)

        assert node.state == await listed(store)
        assert node.status.relists == 1


async def test_rep_6_unknown_kinds_and_records_that_cannot_be_read_do_not_stop_the_others(
    store: MemoryStore, control: MemoryControl
) -> None:
    newer: Any = "weather"
    strange = RecordWrite(kind=newer, id="x", body={"is": "new"})
    wrong = RecordWrite(kind="server", id="bad", body={"server_id": "bad"})
    open_pin = RecordWrite(kind="pin", id="fs", body={"server_id": "other"})
    open_choice = RecordWrite(
        kind="choice", id="a" * 64, body={"principal": "key:ada", "servers": {"fs": "new"}}
    )
    await store.write([strange, server("fs", colour="red"), wrong, open_pin, open_choice], actor="ada")

    async with following(control) as node:
        await write(store, RecordWrite(kind=newer, id="y", body={"is": "newer"}), server("git"))

        assert sorted(node.state.servers) == ["fs", "git"]
        assert node.state.pins == {"fs": Pin(server_id="fs")}
        assert [one.is_readable for one in node.state.choices.values()] == [False]
        assert node.status.is_degraded is False


@pytest.mark.requirement("002-073")
def test_waits_double_to_their_ceiling_and_are_any_part_of_it() -> None:
    full, none = Backoff(DEFAULT_LIMITS, lambda: 1.0), Backoff(DEFAULT_LIMITS, lambda: 0.0)

    assert [full.wait_s() for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [none.wait_s() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_thousand_failures_do_not_overflow_and_are_forgiven() -> None:
    backoff = Backoff(DEFAULT_LIMITS, lambda: 1.0)
    waits = [backoff.wait_s() for _ in range(1_000)]
    backoff.forgive()

    assert (waits[-1], backoff.wait_s(), backoff.wait_s(at_least_up_to_s=1.0)) == (10.0, 0.2, 1.0)
