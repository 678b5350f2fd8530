"""A worker slot: a thread, an engine of its own, and the modules that it has loaded.

One guest at a time. The engine is the slot's own, so that its epoch ends this guest and no other; a store is
used for one run and dropped, however that ended. A slot is never lost: what goes wrong is the end of a run.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypeVar

from wasmtime import Func, FuncType, InstancePre, Linker, Module, Store, Trap, ValType, WasmtimeError

from toolgate.model.invocations import RunUsage
from toolgate.wasm.abi import HostFunction
from toolgate.wasm.engine import MAX_STACK_BYTES, new_engine
from toolgate.wasm.faults import Stopped
from toolgate.wasm.gate import Gate
from toolgate.wasm.guest import RunningGuest
from toolgate.wasm.run import Cause, Job, Run
from toolgate.wasm.trampoline import INTERNAL, make_callback
from toolgate.wasm.traps import MAX_MESSAGE, cause_of

log = logging.getLogger(__name__)

C = TypeVar("C")

MAX_MODULES: Final = 4
"""How many a slot keeps loaded; their code is mapped, and shared with other slots' by the system."""
MAX_TABLES: Final = 8
THREAD_STACK_BYTES: Final = 8 * MAX_STACK_BYTES
NICENESS: Final = 3
"""Of the threads of guests: each has half the share of what serves callers. With less, one that is in a call
and holds the interpreter would wait for its turn on a busy machine, and all others for the interpreter.
"""
_TYPES: Final = {"i": ValType.i32, "I": ValType.i64}


class Order(NamedTuple):
    """A run, and the loop that waits for it: `ended` is called there."""

    run: Run[Any]
    loop: asyncio.AbstractEventLoop
    ended: Callable[[], None]


class Slot(Generic[C]):
    """Begins its thread when it is made, and ends it when it is closed."""

    def __init__(self, functions: Sequence[HostFunction[C]], gate: Gate, *, name: str) -> None:
        self.host_faults = 0
        self._gate = gate
        self._engine = new_engine()
        self._linker = Linker(self._engine)
        self._loaded: OrderedDict[str, InstancePre] = OrderedDict()
        self._guest: RunningGuest[C] | None = None
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        for function in functions:
            self._define(function)
        self._thread = threading.Thread(target=self._work, name=name)
        _start_with_room(self._thread)

    def has_loaded(self, sha256: str) -> bool:
        return sha256 in self._loaded

    def begin(self, order: Order) -> None:
        """The thread's next; it has none now."""
        self._orders.put(order)

    def close(self) -> None:
        """Its thread ends after the run that it is at."""
        self._orders.put(None)

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        _yield_to_the_loop()
        while (order := self._orders.get()) is not None:
            self._execute(order.run, order.loop)
            order.loop.call_soon_threadsafe(order.ended)
            del order
        self._loaded.clear()
        self._linker.close()
        self._engine.close()

    def _execute(self, run: Run[C], loop: asyncio.AbstractEventLoop) -> None:
        started_s = time.monotonic()
        with Store(self._engine) as store:
            guest = self._guest = RunningGuest(run, store, loop, self._gate)
            try:
                self._drive(run, guest, store)
                guest.fds.close_all()
            except BaseException:  # whatever it is: the slot stays, and goes on with the next
                log.exception("a guest could not be run")
                self._count_fault()
                guest.halt(INTERNAL)
            usage = RunUsage(
                fuel=guest.fuel_used,
                wall_ms=round((time.monotonic() - started_s) * 1000),
                memory_bytes=guest.memory.size,
                hostcalls=guest.hostcalls,
            )
            self._guest = None
        run.end(usage)

    def _drive(self, run: Run[C], guest: RunningGuest[C], store: Store) -> None:
        limits = run.job.limits
        store.set_limits(
            limits.memory_bytes, limits.table_elements, instances=1, tables=MAX_TABLES, memories=1
        )
        store.set_fuel(limits.fuel)
        # Before anybody can kill it: the deadline is counted from the epoch that is now.
        store.set_epoch_deadline(1)
        try:
            with run.interruptible(self._engine.increment_epoch):
                instance = self._load(run.job).instantiate(store)
                guest.exports = instance.exports(store)
                guest.memory.adopt(guest.exports.get("memory"))
                start = guest.exports.get("_start")
                assert isinstance(start, Func)  # its module was checked when it was compiled
                start(store)
        except Stopped:
            pass  # it was killed before it began
        except Trap as trap:
            run.settle(cause_of(trap))
        except WasmtimeError as exc:
            run.settle(Cause("module", f"it cannot be begun: {str(exc)[:MAX_MESSAGE]}"))
        else:
            run.settle(Cause("exit", exit_code=0))

    def _load(self, job: Job[C]) -> InstancePre:
        found = self._loaded.pop(job.sha256, None)
        if found is None:
            module = Module.deserialize_file(self._engine, str(job.module))
            found = self._linker.instantiate_pre(module)
        self._loaded[job.sha256] = found  # as the last that was used
        if len(self._loaded) > MAX_MODULES:
            self._loaded.popitem(last=False)
        return found

    def _define(self, function: HostFunction[C]) -> None:
        params, results = (
            [_TYPES[letter]() for letter in word] for word in (function.params, function.result)
        )
        callback = make_callback(function, self._current, self._count_fault)
        self._linker.define_func(
            function.module, function.name, FuncType(params, results), callback, access_caller=True
        )

    def _current(self) -> RunningGuest[C]:
        assert self._guest is not None  # it is what calls
        return self._guest

    def _count_fault(self) -> None:
        self.host_faults += 1


def _start_with_room(thread: threading.Thread) -> None:
    """With a stack for the guest and for our calls below it, however small those of threads are here."""
    usual = threading.stack_size(THREAD_STACK_BYTES)
    try:
        thread.start()
    finally:
        threading.stack_size(usual)


def _yield_to_the_loop() -> None:
    """Let all other threads go before this one: guests may spin, and the event loop serves all callers."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
