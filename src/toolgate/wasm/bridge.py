"""The gate that calls of all guests come through one at a time, and that rests where they come without end.

Calls are Python, and share the interpreter with the event loop. Guests that call and call, each for itself,
would leave it the share of one among many: with 32 of them it was a second late. Together they get a share.

Work that the event loop does while a guest's thread waits for it, and calls from there into the guest.

The thread sleeps on an inbox of its own. What comes in is something to do on this thread, or None: look
whether the work is done, or the run is to end. A run that is to end does not wait for its work: that is
cancelled, and whoever runs the slots awaits it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from toolgate.wasm.abi import OnThread, RunStopped
from toolgate.wasm.run import GuestRun

SHARE: Final = 0.5
"""Of the time, for all guests together."""
REST_S: Final = 0.005
"""How far they may be ahead of it, and how long the gate is closed then."""
POLL_S: Final = 0.05
"""How often who waits at the gate looks whether its run is to end: that does not wait for others' calls."""
CALL_OVERHEAD_S: Final = 0.000_010
"""What the bindings take for a call, before it comes here and after."""


class HostcallGate:
    """The one of all guests; each goes through by a `GatePass` of its own."""

    def __init__(
        self, *, clock_s: Callable[[], float] = time.monotonic, rest: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock_s = clock_s
        self._rest = rest
        self._lock = threading.Lock()
        self._entered_s = 0.0
        self._earned_at_s = 0.0
        """When the time that was used is their share of the time that has passed."""

    def enter(self, is_ending: Callable[[], bool]) -> bool:
        """Whether it is held now; not where the run is to end, which may go on without it."""
        while not self._lock.acquire(timeout=POLL_S):
            if is_ending():
                return False
        if self._earned_at_s > self._clock_s() + REST_S:
            self._rest(REST_S)  # all others wait: it is the event loop's turn
        self._entered_s = self._clock_s()
        return True

    def leave(self, around_s: float) -> None:
        used_s = self._clock_s() - self._entered_s + around_s
        self._earned_at_s = max(self._earned_at_s, self._entered_s) + used_s / SHARE
        self._lock.release()


class GatePass:
    """Held as a context manager; `left` is one too, for who holds it and is about to wait."""

    def __init__(self, gate: HostcallGate, is_ending: Callable[[], bool]) -> None:
        self._gate = gate
        self._is_ending = is_ending
        self._is_held = False
        self.left = _LeftGate(self)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *exc_info: object) -> None:
        self.leave(CALL_OVERHEAD_S)

    def enter(self) -> None:
        self._is_held = self._gate.enter(self._is_ending)

    def leave(self, around_s: float = 0.0) -> None:
        if self._is_held:
            self._is_held = False
            self._gate.leave(around_s)


class _LeftGate:
    def __init__(self, passage: GatePass) -> None:
        self._passage = passage

    def __enter__(self) -> None:
        self._passage.leave()

    def __exit__(self, *exc_info: object) -> None:
        self._passage.enter()


T = TypeVar("T")
R = TypeVar("R")

Inbox = SimpleQueue[Callable[[], None] | None]


def sleep_interruptibly(run: GuestRun[Any], gate: GatePass, seconds: float | None) -> None:
    """Until then, or until the run is to end: Stopped."""
    inbox: Inbox = SimpleQueue()
    with run.interruptible(partial(inbox.put, None)):
        try:
            with gate.left:
                inbox.get(timeout=None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        except Empty:
            return
    raise RunStopped


class LoopCall(Generic[T]):
    """One piece of work. Its methods say on which side they are called."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gate: GatePass,
        work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]],
    ) -> None:
        self._loop = loop
        self._gate = gate
        self._work = work
        self._inbox: Inbox = SimpleQueue()
        self._task: asyncio.Task[T] | None = None

    def wait(self, run: GuestRun[Any]) -> T:
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
            raise RunStopped
        return task.result()

    def _pump(self, run: GuestRun[Any]) -> asyncio.Task[T]:
        while True:
            with self._gate.left:
                call = self._inbox.get()
            if run.is_ending:
                raise RunStopped
            if call is not None:
                call()
            elif self._task is not None and self._task.done():
                return self._task

    def _begin(self, run: GuestRun[Any]) -> None:
        self._task = self._loop.create_task(self._do(run))
        run.loop_tasks.add(self._task)
        self._task.add_done_callback(partial(self._done, run))

    def _done(self, run: GuestRun[Any], task: "asyncio.Task[T]") -> None:
        run.loop_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though the thread may not wait for it any more
        self._inbox.put(None)

    async def _do(self, run: GuestRun[Any]) -> T:
        return await self._work(partial(self._on_thread, run))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _on_thread(self, run: GuestRun[Any], function: Callable[[], R]) -> R:
        """On the event loop."""
        if run.is_ending:
            raise RunStopped
        result: asyncio.Future[R] = self._loop.create_future()
        self._inbox.put(partial(self._call, function, result))
        return await result

    def _call(self, function: Callable[[], R], result: "asyncio.Future[R]") -> None:
        """On the guest's thread. A call that nobody waits for any more is not made."""
        if result.cancelled():
            return
        try:
            value = function()
        except RunStopped:
            raise  # what waits for the result is cancelled with the work
        except Exception as exc:  # it is the work's to handle
            self._loop.call_soon_threadsafe(_set_exception, result, exc)
        else:
            self._loop.call_soon_threadsafe(_set_result, result, value)


def _set_exception(result: "asyncio.Future[R]", exc: Exception) -> None:
    if not result.done():
        result.set_exception(exc)


def _set_result(result: "asyncio.Future[R]", value: R) -> None:
    if not result.done():
        result.set_result(value)
