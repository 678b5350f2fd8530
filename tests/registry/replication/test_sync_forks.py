"""TRY-3: how a node notices that the history of control is not the one it followed, and when it does not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import pytest

from tests.registry.control_play import MemoryControl
from tests.registry.following import following, listed, server
from tests.registry.memory_store import MemoryStore
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.model.revisions import ChangeBatch, RecordList
from toolgate.registry.replication.sync import HistoryPosition

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


async def store_of(*names: str) -> MemoryStore:
    """A store of one epoch, with a transaction for each name; where the names are equal, so are the logs."""
    store = MemoryStore(lambda: 0, epoch="first")
    for name in names:
        await store.write([server("fs", display_name=name)], actor="ada")
    return store


async def test_try_3_a_node_that_was_away_lists_a_history_that_parted_from_its_own() -> None:
    control = MemoryControl(await store_of("a", "b", "lost"))
    async with following(control) as node:
        control.store = forked = await store_of("a", "b", "kept")
        control.cut()
        await pass_time(5)

        assert node.state == await listed(forked)
        assert (node.status.relists, node.status.is_degraded) == (1, False)


async def test_try_3_a_poll_finds_another_history_at_the_same_revision() -> None:
    control = MemoryControl(await store_of("a", "lost"))
    async with following(control, jitter=0.0) as node:
        control.store = forked = await store_of("a", "kept")
        await pass_time(29)  # the watch goes on as if nothing had happened
        early = [state.servers["fs"].display_name for state in node.states]
        await pass_time(10)

        assert early == ["lost"]
        assert node.state == await listed(forked)


async def test_try_3_a_bookmark_of_another_history_ends_the_watch() -> None:
    control = MemoryControl(await store_of("a", "lost"))
    forked = await store_of("a", "kept")
    async with following(control, jitter=0.0) as node:
        control.store = forked
        control.edit = lambda batch: ChangeBatch(revision=batch.revision, digest=forked.digest)
        await pass_time(10)

        assert node.state == await listed(forked)


async def test_a_node_that_goes_on_in_its_own_history_does_not_list_again() -> None:
    control = MemoryControl(await store_of("a", "b"))
    async with following(control) as node:
        control.store = ahead = await store_of("a", "b", "c", "d")
        control.cut()
        await pass_time(300)

        assert node.state == await listed(ahead)
        assert (len(control.lists_s), node.status.relists) == (1, 0)


async def test_a_control_without_digests_is_followed_by_its_epoch_and_revisions() -> None:
    class Earlier(MemoryControl):
        """Of a release that tells none."""

        async def list_records(self) -> RecordList:
            listing = await super().list_records()
            return RecordList(epoch=listing.epoch, revision=listing.revision, records=listing.records)

        async def newest(self) -> HistoryPosition:
            return HistoryPosition(*(await super().newest())[:2])

    control = Earlier(await store_of("a"))
    control.edit = lambda batch: ChangeBatch(revision=batch.revision, changes=batch.changes)
    async with following(control) as node:
        control.cut()
        await control.store.write([server("git")], actor="ada")
        await pass_time(300)

        assert sorted(node.state.servers) == ["fs", "git"]
        assert (len(control.lists_s), node.status.relists) == (1, 0)


class Replicas(MemoryControl):
    """Asks one store after the other, whenever it is asked anything."""

    def __init__(self, stores: Sequence[MemoryStore]) -> None:
        super().__init__(stores[0])
        self._stores = cycle(stores)

    async def list_records(self) -> RecordList:
        self.store = next(self._stores)
        return await super().list_records()

    @asynccontextmanager
    async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        self.store = next(self._stores)
        async with super().watch_records(since) as batches:
            yield batches


async def test_a_replica_that_is_behind_does_not_take_a_node_back() -> None:
    newest, behind = await store_of("a", "b", "c"), await store_of("a", "b")
    control = Replicas((newest, behind))
    async with following(control, jitter=0.5) as node:
        for _ in range(40):
            control.cut()
            await pass_time(5)

        revisions = [state.revision for state in node.states]
        assert revisions == sorted(revisions)
        assert node.state == await listed(newest)
