"""Between the threads of guests and the event loop: the gate of all hostcalls, and work on the loop.

Hostcalls are Python, and share the interpreter with the event loop. Guests that call without end would leave
the loop the share of one thread among many: with 32 of them it was a second late. So calls of all guests pass
one gate, one at a time, and together get a fixed share of the time.

While the loop works for a guest, its thread waits on an inbox. It gets functions to call on this thread, or
None: check whether the work is done, or the run has to end. A run that has to end does not wait for its work:
the work is cancelled, and `Slots` awaits it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from toolgate.wasm.abi import OnThread, RunStopped
from toolgate.wasm.run import GuestRun

SHARE: Final = 0.5
"""Of the time, for all guests together."""
REST_S: Final = 0.005
"""How far they may be ahead of their share, and how long the gate closes then."""
POLL_S: Final = 0.05
"""How often a thread at the gate checks whether its run has to end, instead of waiting for others' calls."""
CALL_OVERHEAD_S: Final = 0.000_010
"""What the bindings take for a call, before and after it is here."""

T = TypeVar("T")
R = TypeVar("R")

Inbox = SimpleQueue[Callable[[], None] | None]


class HostcallGate:
    """The gate of all guests; each passes it by a `GatePass` of its own."""

    def __init__(
        self, *, clock_s: Callable[[], float] = time.monotonic, rest: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock_s = clock_s
        self._rest = rest
        self._lock = threading.Lock()
        self._entered_s = 0.0
        self._earned_at_s = 0.0
        """When the time used so far is the guests' share of the time that has passed."""

    def enter(self, is_ending: Callable[[], bool]) -> bool:
        """Whether the gate is held now. A run that has to end goes on without it."""
        while not self._lock.acquire(timeout=POLL_S):
            if is_ending():
                return False
        if self._earned_at_s > self._clock_s() + REST_S:
            self._rest(REST_S)  # all other guests wait, too: the event loop runs
        self._entered_s = self._clock_s()
        return True

    def leave(self, overhead_s: float) -> None:
        used_s = self._clock_s() - self._entered_s + overhead_s
        self._earned_at_s = max(self._earned_at_s, self._entered_s) + used_s / SHARE
        self._lock.release()


class GatePass:
    """Holds the gate as a context manager. Within it, the context manager `left` leaves it to wait."""

    def __init__(self, gate: HostcallGate, is_ending: Callable[[], bool]) -> None:
        self._gate = gate
        self._is_ending = is_ending
        self._is_held = False

    def __enter__(self) -> None:
        self._is_held = self._gate.enter(self._is_ending)

    def __exit__(self, *exc_info: object) -> None:
        self.leave(CALL_OVERHEAD_S)

    @contextmanager
    def left(self) -> Iterator[None]:
        self.leave()
        try:
            yield
        finally:
            self.__enter__()

    def leave(self, overhead_s: float = 0.0) -> None:
        if self._is_held:
            self._is_held = False
            self._gate.leave(overhead_s)


def sleep_interruptibly(run: GuestRun[Any], gate: GatePass, seconds: float | None) -> None:
    """Sleep. Raises RunStopped when the run has to end."""
    inbox: Inbox = SimpleQueue()
    with run.interruptible(partial(inbox.put, None)):
        try:
            with gate.left():
                inbox.get(timeout=None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        except Empty:
            return
    raise RunStopped


class LoopCall(Generic[T]):
    """One piece of work on the event loop, for which a guest's thread waits."""

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

    # On the guest's thread

    def wait(self, run: GuestRun[Any]) -> T:
        """The result of the work. Raises what it raises, and RunStopped."""
        with run.interruptible(partial(self._inbox.put, None)):
            self._loop.call_soon_threadsafe(self._begin, run, context=run.contextvars)
            try:
                task = self._serve_inbox(run)
            except BaseException:
                self._loop.call_soon_threadsafe(self._cancel)
                raise
        if task.cancelled():
            run.kill("node_stopped", "its node stopped")
            raise RunStopped
        return task.result()

    def _serve_inbox(self, run: GuestRun[Any]) -> asyncio.Task[T]:
        while True:
            with self._gate.left():
                call = self._inbox.get()
            if run.is_ending:
                raise RunStopped
            if call is not None:
                call()
            elif self._task is not None and self._task.done():
                return self._task

    def _call(self, function: Callable[[], R], result: "asyncio.Future[R]") -> None:
        if result.cancelled():  # the work does not wait for it any more
            return
        try:
            value = function()
        except RunStopped:
            raise  # the work is cancelled, and with it what waits for the result
        except Exception as exc:  # the work handles it
            self._loop.call_soon_threadsafe(_fail, result, exc)
        else:
            self._loop.call_soon_threadsafe(resolve, result, value)

    # On the event loop

    def _begin(self, run: GuestRun[Any]) -> None:
        self._task = self._loop.create_task(self._run_work(run))
        run.loop_tasks.add(self._task)
        self._task.add_done_callback(partial(self._end, run))

    async def _run_work(self, run: GuestRun[Any]) -> T:
        return await self._work(partial(self._run_on_thread, run))

    def _end(self, run: GuestRun[Any], task: "asyncio.Task[T]") -> None:
        run.loop_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the thread may not wait any more
        self._inbox.put(None)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run_on_thread(self, run: GuestRun[Any], function: Callable[[], R]) -> R:
        if run.is_ending:
            raise RunStopped
        result: asyncio.Future[R] = self._loop.create_future()
        self._inbox.put(partial(self._call, function, result))
        return await result


def resolve(future: "asyncio.Future[R]", value: R) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[R]", exc: Exception) -> None:
    if not future.done():
        future.set_exception(exc)
