"""Work that the event loop does while a guest's thread waits for it, and calls from there into the guest.

The thread sleeps on an inbox of its own. What comes in is something to do on this thread, or None: look
whether the work is done, or the run is to end. A run that is to end does not wait for its work: that is
cancelled, and whoever runs the slots awaits it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from toolgate.wasm.abi import OnThread
from toolgate.wasm.faults import Stopped
from toolgate.wasm.gate import Passage
from toolgate.wasm.run import Run

T = TypeVar("T")
R = TypeVar("R")

Inbox = SimpleQueue[Callable[[], None] | None]


def sleep(run: Run[Any], gate: Passage, seconds: float | None) -> None:
    """Until then, or until the run is to end: Stopped."""
    inbox: Inbox = SimpleQueue()
    with run.interruptible(partial(inbox.put, None)):
        try:
            with gate.left:
                inbox.get(timeout=None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        except Empty:
            return
    raise Stopped


class Crossing(Generic[T]):
    """One piece of work. Its methods say on which side they are called."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gate: Passage,
        work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]],
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._work = work
        self._inbox: Inbox = SimpleQueue()
        self._task: asyncio.Task[T] | None = None

    def wait(self, run: Run[Any]) -> T:
        """On the guest's thread: what the work gives, or raises; Stopped."""
        with run.interruptible(partial(self._inbox.put, None)):
            self._loop.call_soon_threadsafe(self._begin, run, context=run.surroundings)
            try:
                task = self._pump(run)
            except BaseException:
                self._loop.call_soon_threadsafe(self._cancel)
                raise
        if task.cancelled():
            run.kill("node_stopped", "its node stopped")
            raise Stopped
        return task.result()

    def _pump(self, run: Run[Any]) -> asyncio.Task[T]:
        while True:
            with self._gate.left:
                call = self._inbox.get()
            if run.is_ending:
                raise Stopped
            if call is not None:
                call()
            elif self._task is not None and self._task.done():
                return self._task

    def _begin(self, run: Run[Any]) -> None:
        self._task = self._loop.create_task(self._do(run))
        run.works.add(self._task)
        self._task.add_done_callback(partial(self._done, run))

    def _done(self, run: Run[Any], task: "asyncio.Task[T]") -> None:
        run.works.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though the thread may not wait for it any more
        self._inbox.put(None)

    async def _do(self, run: Run[Any]) -> T:
        return await self._work(partial(self._on_thread, run))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _on_thread(self, run: Run[Any], function: Callable[[], R]) -> R:
        """On the event loop."""
        if run.is_ending:
            raise Stopped
        result: asyncio.Future[R] = self._loop.create_future()
        self._inbox.put(partial(self._call, function, result))
        return await result

    def _call(self, function: Callable[[], R], result: "asyncio.Future[R]") -> None:
        """On the guest's thread. A call that nobody waits for any more is not made."""
        if result.cancelled():
            return
        try:
            value = function()
        except Stopped:
            raise  # what waits for the result is cancelled with the work
        except Exception as exc:  # it is the work's to handle
            self._loop.call_soon_threadsafe(_fail, result, exc)
        else:
            self._loop.call_soon_threadsafe(_fulfil, result, value)


def _fail(result: "asyncio.Future[R]", exc: Exception) -> None:
    if not result.done():
        result.set_exception(exc)


def _fulfil(result: "asyncio.Future[R]", value: R) -> None:
    if not result.done():
        result.set_result(value)
