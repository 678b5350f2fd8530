"""Those who wait for runs are served by one look at the queue."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from tests.contract.invocation_samples import SUCCESS, begin, line, make
from tests.registry.memory_store import MemoryInvocations
from toolgate.errors import StorageUnavailable
from toolgate.govern.watches import InvocationPoller
from toolgate.registry.invocations import InvocationProgress

pytestmark = pytest.mark.anyio

RUNNING = InvocationProgress("running", 1, 0)


class CountedInvocations(MemoryInvocations):
    """Remembers how many were asked after at each look, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.looks: list[int] = []
        self.is_away = False

    async def marks(self, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
        self.looks.append(len(ids))
        if self.is_away:
            raise StorageUnavailable("the database is away")
        return await super().marks(ids)


async def waiting(
    marks: InvocationPoller, queue: CountedInvocations, *ids: str
) -> list[asyncio.Task[InvocationProgress | None]]:
    """Those who wait for each of them to move on, once they do."""
    tasks = [asyncio.ensure_future(marks.wait_for_change(queue, one, RUNNING)) for one in ids]
    async with asyncio.timeout(60):
        while len(queue.looks) <= len(ids):  # each looks first, then one of them for all
            await asyncio.sleep(0)
    return tasks


async def test_many_who_wait_are_one_question() -> None:
    queue, marks = CountedInvocations(), InvocationPoller()
    ids = [str(n) for n in range(50)]
    for one in ids:
        await begin(queue, one)
    tasks = await waiting(marks, queue, *ids)
    for one in ids:
        await queue.report(one, 1, ending=SUCCESS)
    async with asyncio.timeout(60):
        moved = await asyncio.gather(*tasks)

    assert moved == [InvocationProgress("succeeded", 1, 0)] * 50
    assert queue.looks == [1] * 50 + [50] * (len(queue.looks) - 50)
    assert len(queue.looks) < 55


async def test_progress_that_was_made_already_is_reported_at_once() -> None:
    queue, marks = CountedInvocations(), InvocationPoller()
    await make(queue, "a")

    assert await marks.wait_for_change(queue, "a", None) == InvocationProgress("queued", 0, 0)
    assert await marks.wait_for_change(queue, "a", RUNNING) == InvocationProgress("queued", 0, 0)
    assert await marks.wait_for_change(queue, "none", RUNNING) is None


async def test_a_new_line_is_news_and_what_happens_to_others_is_not() -> None:
    queue, marks = CountedInvocations(), InvocationPoller()
    await begin(queue, "a")
    await begin(queue, "b")
    (task,) = await waiting(marks, queue, "a")
    await queue.report("b", 1, lines=[line(1)])
    async with asyncio.timeout(60):
        while queue.looks.count(1) < 3:  # someone looked, because of the other one
            await asyncio.sleep(0)
        is_notified = task.done()
        await queue.report("a", 1, lines=[line(1)])
        moved = await task

    assert (is_notified, moved) == (False, InvocationProgress("running", 1, 1))


async def test_a_queue_that_fails_fails_its_waiters_and_no_later_one() -> None:
    queue, marks = CountedInvocations(), InvocationPoller()
    await begin(queue, "a")
    tasks = await waiting(marks, queue, "a")
    queue.is_away = True
    await begin(queue, "b")
    async with asyncio.timeout(60):
        failed = await asyncio.gather(*tasks, return_exceptions=True)
    queue.is_away = False

    assert [type(one) for one in failed] == [StorageUnavailable]
    assert await marks.wait_for_change(queue, "a", None) == RUNNING


async def test_polling_stops_without_waiters() -> None:
    queue, marks = CountedInvocations(), InvocationPoller()
    await begin(queue, "a")
    (task,) = await waiting(marks, queue, "a")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert marks._polling is None
