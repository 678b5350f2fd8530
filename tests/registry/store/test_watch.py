"""The watch hub where stores cannot easily be brought to: a history replaced in the middle of reading it."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from toolgate.errors import Compacted
from toolgate.model.revisions import ChangeBatch
from toolgate.registry.database.statements import StoreHead
from toolgate.registry.store.sql_store import REPLAYS, WatchHub


def head(revision: int) -> StoreHead:
    return StoreHead(schema_version=0, epoch="", revision=revision, compacted=0)


pytestmark = pytest.mark.anyio


class Log:
    """A log whose pages come when they are let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.response = asyncio.Event()
        self.readers = 0

    async def read(self, after: int, upto: int) -> Sequence[ChangeBatch]:
        self.readers += 1
        self.asked.set()
        await self.response.wait()
        return [ChangeBatch(revision=revision) for revision in range(after + 1, upto + 1)]

    async def read_digest(self, revision: int) -> str:
        return f"digest of {revision}"


async def test_a_page_of_a_history_that_was_replaced_meanwhile_is_not_delivered() -> None:
    log = Log()
    hub = WatchHub(log.read, log.read_digest, start=head(5))
    async with asyncio.timeout(60), hub.watch(0) as batches:
        reading = asyncio.ensure_future(anext(batches))
        await log.asked.wait()
        hub.restart(head(7))
        log.response.set()

        with pytest.raises(Compacted):
            await reading


async def test_a_watcher_that_waits_is_woken_by_another_history() -> None:
    hub = WatchHub(Log().read, Log().read_digest, start=head(5))
    async with asyncio.timeout(60), hub.watch(5) as live:
        assert await anext(live) == ChangeBatch(revision=5)
        waiting = asyncio.ensure_future(anext(live))
        await asyncio.sleep(0)
        hub.restart(head(20))

        with pytest.raises(Compacted):
            await waiting
    async with asyncio.timeout(60), hub.watch(20) as batches:
        assert await anext(batches) == ChangeBatch(revision=20)


async def test_however_many_watchers_come_back_together_few_read_the_log_at_once() -> None:
    log = Log()
    hub = WatchHub(log.read, log.read_digest, start=head(5))
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(hub.watch(0)) for _ in range(20)]
        reading = [asyncio.ensure_future(anext(batches)) for batches in watches]
        await log.asked.wait()
        at_once = log.readers
        reading.pop().cancel()
        log.response.set()

        assert at_once == REPLAYS
        assert await asyncio.gather(*reading) == [ChangeBatch(revision=1)] * 19


async def test_compaction_never_goes_back() -> None:
    hub = WatchHub(Log().read, Log().read_digest, start=head(9))
    hub.on_compacted(5)
    hub.on_compacted(3)

    assert hub.compacted == 5
