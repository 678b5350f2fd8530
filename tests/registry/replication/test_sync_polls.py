"""Polls of control: the safety net under the watch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.registry.control_play import MemoryControl
from tests.registry.following import following, listed, server, write
from tests.registry.memory_store import MemoryStore
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import ControlUnavailable
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.replication.sync import HistoryPosition

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


async def test_what_a_poll_found_is_not_forgotten_for_a_batch_that_comes_at_the_same_moment(
    store: MemoryStore,
) -> None:
    class Restored(MemoryControl):
        """Is another one from the first poll on; the watch that is open gets one more batch just then."""

        async def newest(self) -> HistoryPosition:
            await store.write([server("fs")], actor="ada")
            self.store = MemoryStore(lambda: 0, epoch="second")
            return await super().newest()

    control = Restored(store)
    async with following(control, jitter=0.0) as node:
        await pass_time(30.5)

        assert control.polls_s == [30.0]
        assert node.status.epoch == "second"


async def test_a_poll_may_find_something_while_the_watch_is_being_given_up(store: MemoryStore) -> None:
    class Lingering(MemoryControl):
        """Takes its time to answer, and to close."""

        async def newest(self) -> HistoryPosition:
            await pass_time(0.5)
            return await super().newest()

        @asynccontextmanager
        async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
            async with super().watch_records(since) as batches:
                try:
                    yield batches
                finally:
                    await pass_time(1)

    control = Lingering(store)
    async with following(control, jitter=0.0) as node:
        await pass_time(16)
        control.is_mute = True  # after the bookmark at 20 s: patience runs out at 30 s, just as a poll begins
        control.store = MemoryStore(lambda: 0, epoch="second")
        await pass_time(14.8)
        control.is_mute = False
        await pass_time(5)

        assert control.polls_s == [30.5]
        assert node.status.epoch == "second"


async def test_a_poll_that_fails_or_is_outrun_by_a_listing_changes_nothing(store: MemoryStore) -> None:
    restored = MemoryStore(lambda: 0, epoch="second")

    class Slow(MemoryControl):
        """The first poll fails; during the second one, control is restored and listed again."""

        async def newest(self) -> HistoryPosition:
            if not self.polls_s:
                await super().newest()
                raise ControlUnavailable("not now")
            found = await super().newest()
            self.store = restored
            self.cut()
            await pass_time(3)
            return found

    control = Slow(store)
    async with following(control, jitter=0.0) as node:
        await pass_time(29 + 30 + 10)

        assert len(control.polls_s) == 2
        assert (node.status.epoch, node.status.relists) == ("second", 1)


@pytest.mark.requirement("002-072")
async def test_a_poll_finds_what_the_watch_does_not_deliver(
    store: MemoryStore, control: MemoryControl
) -> None:
    async with following(control, jitter=0.0) as node:
        control.edit = lambda batch: ChangeBatch(revision=0)
        await write(store, server("fs"))
        await pass_time(29)
        before = sorted(node.state.servers)
        await pass_time(5)

        assert before == []
        assert node.state == await listed(store)
        assert node.status.relists == 1


async def test_a_poll_that_is_a_moment_ahead_of_the_watch_is_no_cause_to_list(
    store: MemoryStore, control: MemoryControl
) -> None:
    async with following(control, jitter=0.0) as node:
        control.delay_s = 0.7
        await pass_time(29.5)
        await store.write([server("fs")], actor="ada")
        await pass_time(0.6)
        while_polled = (len(control.polls_s), sorted(node.state.servers))
        await pass_time(5)

        assert while_polled == (1, [])
        assert (node.status.relists, sorted(node.state.servers)) == (0, ["fs"])


@pytest.mark.requirement("002-072")
@pytest.mark.parametrize(("jitter", "every_s"), [(0.0, 30.0), (0.5, 75.0), (1.0, 120.0)])
async def test_polls_are_spread_over_half_a_minute_to_two(
    control: MemoryControl, jitter: float, every_s: float
) -> None:
    async with following(control, jitter=jitter):
        await pass_time(3 * every_s + 1)

    assert [round(at_s) for at_s in control.polls_s] == [every_s, 2 * every_s, 3 * every_s]
