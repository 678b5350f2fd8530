"""The worker slots of a node: one thread for each guest that runs, made when it is needed, up to a number.

The event loop's side of all runs: it gives a run its slot, ends it at its deadline, and awaits what it left
behind. A run that finds no slot free waits for one; nobody claims more than are `free`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

from toolgate.model.invocations import Ending, RunUsage
from toolgate.wasm.abi import HostFunction
from toolgate.wasm.faults import Stopped
from toolgate.wasm.gate import Gate
from toolgate.wasm.run import Job, Run
from toolgate.wasm.slot import Order, Slot

__all__ = ["Job", "Run", "Slots"]

C = TypeVar("C")
T = TypeVar("T")


class Slots(Generic[C]):
    """All of them; an async context manager. Leaving it ends what runs, and the threads."""

    def __init__(self, functions: Sequence[HostFunction[C]], *, max_guests: int) -> None:
        self._functions = tuple(functions)
        self._max_guests = max_guests
        self._gate = Gate()
        self._slots: list[Slot[C]] = []
        self._idle: list[Slot[C]] = []
        self._runs: dict[Run[C], asyncio.Future[None]] = {}
        self._waiting: deque[asyncio.Future[Slot[C] | None]] = deque()
        self._is_closed = False

    @property
    def free(self) -> int:
        """How many more can begin now."""
        return max(0, self._max_guests - len(self._runs))

    @property
    def host_faults(self) -> int:
        """How often a call of a guest failed by the host's own fault. Anything but 0 is a bug."""
        return sum(slot.host_faults for slot in self._slots)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_closed = True
        for run in self._runs:
            run.kill("node_stopped", "its node stopped")
        try:
            await _outlast(tuple(self._runs.values()))
        finally:
            for slot in self._slots:
                slot.close()
            await _outlast([asyncio.ensure_future(asyncio.to_thread(self._join))])

    async def run(self, run: Run[C]) -> Ending:
        """Run it, as soon as a slot is free. Who cancels this kills it, and is back when it has ended."""
        if self._is_closed:
            run.kill("node_stopped", "its node stopped")
        done = self._runs[run] = asyncio.get_running_loop().create_future()
        try:
            slot = await self._take(run)
            if slot is not None:
                try:
                    await self._drive(run, slot)
                finally:
                    self._give_back(slot)
            return run.ending or run.end(RunUsage())
        finally:
            del self._runs[run]
            done.set_result(None)

    async def _drive(self, run: Run[C], slot: Slot[C]) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        limit_ms = run.job.limits.wall_clock_ms
        timer = loop.call_later(
            limit_ms / 1000,
            run.kill,
            "deadline",
            f"it ran for {limit_ms} ms, as long as `limits.wall_clock_ms` lets it",
        )
        slot.begin(Order(run, loop, partial(ended.set_result, None)))
        try:
            await _outlast([ended], on_cancel=partial(run.kill, "cancelled", "nobody waits for it any more"))
        finally:
            timer.cancel()
            await _outlast(tuple(run.works))

    async def _take(self, run: Run[C]) -> Slot[C] | None:
        """A slot that is this run's alone. None: it was killed before there was one."""
        if run.is_ending:
            return None
        if self._idle or len(self._slots) < self._max_guests:
            return self._choose(run.job.sha256)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Slot[C] | None] = loop.create_future()
        self._waiting.append(waiter)
        try:
            with run.interruptible(partial(loop.call_soon_threadsafe, _resolve, waiter, None)):
                return await waiter
        except Stopped:
            return None
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (slot := waiter.result()) is not None:
                self._give_back(slot)
            raise
        finally:
            waiter.cancel()  # who gives a slot back passes it over

    def _choose(self, sha256: str) -> Slot[C]:
        """One that has the module, else the one that was used last, else a new one."""
        for slot in reversed(self._idle):
            if slot.has_loaded(sha256):
                self._idle.remove(slot)
                return slot
        if self._idle:
            return self._idle.pop()
        slot = Slot(self._functions, self._gate, name=f"guest-{len(self._slots)}")
        self._slots.append(slot)
        return slot

    def _give_back(self, slot: Slot[C]) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._idle.append(slot)

    def _join(self) -> None:
        for slot in self._slots:
            slot.join()


def _resolve(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


async def _outlast(
    futures: "Collection[asyncio.Future[Any]]", *, on_cancel: Callable[[], object] | None = None
) -> None:
    """Until all are done, however often this is cancelled meanwhile: that is raised afterwards."""
    cancellation = None
    while pending := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as exc:
            cancellation = exc
            if on_cancel is not None:
                on_cancel()
    if cancellation is not None:
        raise cancellation
