"""The worker slots of a node. Each has a thread, an engine and loaded modules, and runs one guest at a time.

An engine belongs to one slot, so that its epoch ends only this guest. A store serves one run and is dropped.
A slot is never lost: any failure ends only the run.

`Slots` runs on the event loop: it assigns a slot to a run, ends the run at its deadline, and awaits its
remaining work. A run without a free slot waits for one; the invoker claims at most as many runs as slots are
`free`.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, Self, TypeVar

from wasmtime import Func, FuncType, InstancePre, Linker, Module, Store, Trap, ValType, WasmtimeError

from toolgate.model.invocations import InvocationResult, RunUsage
from toolgate.wasm.abi import HostFunction, RunStopped
from toolgate.wasm.compiler import MAX_STACK_BYTES, new_engine
from toolgate.wasm.guest import INTERNAL_MESSAGE, MAX_MESSAGE, Guest, classify_trap, make_callback
from toolgate.wasm.run import GuestJob, GuestRun, HostcallGate, build_ending

log = logging.getLogger(__name__)

C = TypeVar("C")
T = TypeVar("T")

MAX_MODULES: Final = 4  # loaded modules of one slot; a choice: slots share their mapped code
MAX_TABLES: Final = 8  # of a guest; a choice: compilers make one
THREAD_STACK_BYTES: Final = 8 * MAX_STACK_BYTES
NICENESS: Final = 3
"""Niceness of guests' threads, for half the share of a thread that serves callers. With less, a guest that
holds the interpreter in a hostcall would wait for the processor on a busy machine, and all others for the
guest."""
_TYPES: Final = {"i": ValType.i32, "I": ValType.i64}


class Slot(Generic[C]):
    """One slot. Its thread starts with it, and ends when it is closed."""

    def __init__(self, functions: Sequence[HostFunction[C]], gate: HostcallGate, *, name: str) -> None:
        self.host_faults = 0
        self.loaded: OrderedDict[str, InstancePre] = OrderedDict()
        self.orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """The runs to execute, one after another. None: end the thread."""
        self._gate = gate
        self._engine = new_engine()
        self._linker = Linker(self._engine)
        self._guest: Guest[C] | None = None
        for one in functions:
            params, results = ([_TYPES[letter]() for letter in word] for word in (one.params, one.result))
            callback = make_callback(one, self._current)
            kind = FuncType(params, results)
            self._linker.define_func(one.module, one.name, kind, callback, access_caller=True)
        self.thread = threading.Thread(target=self._work, name=name)
        # Large enough for the guest's stack and the host's frames, independent of the platform's default.
        usual = threading.stack_size(THREAD_STACK_BYTES)
        try:
            self.thread.start()
        finally:
            threading.stack_size(usual)

    def _work(self) -> None:
        if sys.platform == "linux":  # other systems have no priority per thread
            # Other threads come first: guests may spin, and the event loop serves all callers.
            thread = threading.get_native_id()
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
        while (order := self.orders.get()) is not None:
            order()
            del order
        self.loaded.clear()
        self._linker.close()
        self._engine.close()

    def execute(
        self, run: GuestRun[C], loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
    ) -> None:
        """Execute a run on this slot's thread. `ended`: a future of the event loop that waits for it."""
        started_s = time.monotonic()
        with Store(self._engine) as store:
            guest = self._guest = Guest(run, store, loop, self._gate)
            try:
                self._drive(run, guest, store)
                guest.fds.close_all()
            except BaseException:  # the slot survives, and executes the next run
                log.exception("cannot run a guest")
                guest.host_faults += 1
                guest.halt(INTERNAL_MESSAGE)
            usage = RunUsage(
                fuel=guest.fuel_used,
                wall_ms=round((time.monotonic() - started_s) * 1000),
                memory_bytes=guest.memory_bytes,
                hostcalls=guest.hostcalls,
            )
            self.host_faults += guest.host_faults
            self._guest = None
        run.end(usage)
        loop.call_soon_threadsafe(ended.set_result, None)

    def _drive(self, run: GuestRun[C], guest: Guest[C], store: Store) -> None:
        limits = run.job.workload.limits
        elements = limits.table_elements
        store.set_limits(limits.memory_bytes, elements, instances=1, tables=MAX_TABLES, memories=1)
        store.set_fuel(limits.fuel)
        # Before a kill is possible: the deadline counts from the current epoch.
        store.set_epoch_deadline(1)
        try:
            with run.interruptible(self._engine.increment_epoch):
                instance = self._load(run.job).instantiate(store)
                guest.exports = instance.exports(store)
                guest.adopt_memory(guest.exports.get("memory"))
                start = guest.exports.get("_start")
                assert isinstance(start, Func)  # the compiler has checked it
                start(store)
        except RunStopped:
            pass  # the run was killed before it started
        except Trap as trap:
            run.settle(classify_trap(trap))
        except WasmtimeError as exc:
            run.settle(build_ending("module", f"the module did not start: {str(exc)[:MAX_MESSAGE]}"))
        else:
            run.settle(build_ending("exit", exit_code=0))

    def _load(self, job: GuestJob[C]) -> InstancePre:
        sha256 = job.workload.module
        found = self.loaded.pop(sha256, None)
        if found is None:
            module = Module.deserialize_file(self._engine, str(job.compiled))
            found = self._linker.instantiate_pre(module)
        self.loaded[sha256] = found  # now the most recently used
        if len(self.loaded) > MAX_MODULES:
            self.loaded.popitem(last=False)
        return found

    def _current(self) -> Guest[C]:
        assert self._guest is not None  # the guest makes the hostcall
        return self._guest


class Slots(Generic[C]):
    """All slots of a node; an async context manager, whose exit ends all runs and threads."""

    def __init__(self, functions: Sequence[HostFunction[C]], *, max_guests: int) -> None:
        self._functions = tuple(functions)
        self._max_guests = max_guests
        self._gate = HostcallGate()
        self._slots: list[Slot[C]] = []
        self._idle: list[Slot[C]] = []
        self._runs: dict[GuestRun[C], asyncio.Future[None]] = {}
        self._waiting: deque[asyncio.Future[Slot[C] | None]] = deque()
        self._is_closed = False

    @property
    def free(self) -> int:
        """The number of runs that can start now."""
        return max(0, self._max_guests - len(self._runs))

    @property
    def host_faults(self) -> int:
        """The number of hostcalls that failed by an error of the host. Anything but 0 is a bug."""
        return sum(slot.host_faults for slot in self._slots)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_closed = True
        for run in self._runs:
            run.kill("node_stopped", "the node stopped")
        try:
            await _wait_for_all(tuple(self._runs.values()))
        finally:
            for slot in self._slots:
                slot.orders.put(None)  # after its current run
            joins = [asyncio.to_thread(slot.thread.join) for slot in self._slots]
            await _wait_for_all([asyncio.ensure_future(join) for join in joins])

    async def run(self, run: GuestRun[C]) -> InvocationResult:
        """Execute a run as soon as a slot is free. If cancelled, kills the run and returns after its end."""
        if self._is_closed:
            run.kill("node_stopped", "the node stopped")
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

    async def _drive(self, run: GuestRun[C], slot: Slot[C]) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        limit_ms = run.job.workload.limits.wall_clock_ms
        message = f"the run exceeded its `limits.wall_clock_ms` of {limit_ms} ms"
        timer = loop.call_later(limit_ms / 1000, run.kill, "deadline", message)
        slot.orders.put(partial(slot.execute, run, loop, ended))
        try:
            on_cancel = partial(run.kill, "cancelled", "the caller cancelled the run")
            await _wait_for_all([ended], on_cancel=on_cancel)
        finally:
            timer.cancel()
            await _wait_for_all(tuple(run.loop_tasks))

    async def _take(self, run: GuestRun[C]) -> Slot[C] | None:
        """Take a slot. None: the run was killed before a slot was free."""
        if run.is_ending:
            return None
        if self._idle or len(self._slots) < self._max_guests:
            return self._choose(run.job.workload.module)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Slot[C] | None] = loop.create_future()
        self._waiting.append(waiter)

        def give_up() -> None:
            if not waiter.done():
                waiter.set_result(None)

        try:
            with run.interruptible(partial(loop.call_soon_threadsafe, give_up)):
                return await waiter
        except RunStopped:
            return None
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (slot := waiter.result()) is not None:
                self._give_back(slot)
            raise
        finally:
            waiter.cancel()  # `_give_back` skips it

    def _choose(self, sha256: str) -> Slot[C]:
        """A free slot with the module, else the last used one, else a new one."""
        for slot in reversed(self._idle):
            if sha256 in slot.loaded:
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


async def _wait_for_all(
    futures: "Collection[asyncio.Future[Any]]", *, on_cancel: Callable[[], object] | None = None
) -> None:
    """Wait until all are done. If cancelled meanwhile, however often, raises the cancellation afterwards."""
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
