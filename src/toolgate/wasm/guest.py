"""A guest while it runs, as the functions that it calls see it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

from wasmtime import Caller, Func, FuncType, Store, Table, Trap, ValType

from toolgate.wasm.abi import OnThread
from toolgate.wasm.bridge import Crossing, sleep
from toolgate.wasm.faults import Errno, Fault, Stopped
from toolgate.wasm.fds import FdTable
from toolgate.wasm.gate import Gate, Passage
from toolgate.wasm.memory import GuestMemory
from toolgate.wasm.run import Cause, Run
from toolgate.wasm.traps import cause_of

C = TypeVar("C")
T = TypeVar("T")

MAX_DEPTH: Final = 4
"""How deep calls into the guest may stand in calls of the guest: each holds a stack of the host's."""
_TABLES: Final = ("__indirect_function_table", "table")


class RunningGuest(Generic[C]):
    """One guest in its store. Lives on the thread of its slot."""

    def __init__(self, run: Run[C], store: Store, loop: asyncio.AbstractEventLoop, gate: Gate) -> None:
        job = run.job
        self.context = job.context
        self.limits = job.limits
        self.output = run.output
        self.fds = FdTable(job.limits.max_fds)
        self.args = tuple(arg.encode(errors="replace") for arg in job.args)
        self.env = tuple(f"{name}={value}".encode(errors="replace") for name, value in job.env.items())
        self.memory = GuestMemory(store)
        self.exports: Mapping[str, object] = {}
        """What it exports, from when it has been made."""
        self.hostcalls = 0
        self.gate = Passage(gate, lambda: run.is_ending)
        self._run = run
        self._store = store
        self._loop = loop
        self._input_at = 0
        self._depth = 0
        self._fuel_left: int | None = None
        self.read = self.memory.read
        self.read_u32 = self.memory.read_u32
        self.write = self.memory.write
        self.write_u32 = self.memory.write_u32
        self.check_out = self.memory.check_out
        self.put_out = self.memory.put_out

    def read_input(self, most: int) -> bytes:
        start, self._input_at = self._input_at, self._input_at + max(most, 0)
        return self._run.job.input[start : self._input_at]

    def call_table(self, index: int, *args: int) -> int:
        function = self._function(index & 0xFFFF_FFFF, len(args))
        if self._depth >= MAX_DEPTH:
            raise Fault(Errno.EAGAIN)
        self._depth += 1
        try:
            with self.gate.left:
                result: int = function(self._store, *args)
        except Trap as trap:
            self._run.settle(cause_of(trap))
            raise Stopped from None
        finally:
            self._depth -= 1
        if self._run.is_ending:
            raise Stopped
        return result

    def sleep(self, seconds: float | None) -> None:
        sleep(self._run, self.gate, seconds)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return Crossing(self._loop, self.gate, lambda _: work()).wait(self._run)

    def serve(self, work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]) -> T:
        if self._depth >= MAX_DEPTH:
            raise Fault(Errno.EAGAIN)
        return Crossing(self._loop, self.gate, work).wait(self._run)

    def exit(self, code: int) -> None:
        self._run.settle(Cause("exit", exit_code=code))
        raise Stopped

    def enter(self, caller: Caller) -> None:
        """A call begins. Raises Stopped where the run is ending: what it returns to has not noticed yet."""
        if self._run.is_ending:
            raise Stopped
        self.hostcalls += 1
        self.memory.find(caller)

    def halt(self, message: str) -> None:
        """Let it go no further. Where nothing has ended it yet, the host is at fault.

        Without fuel it traps as soon as it goes on; an epoch deadline would come too late: the code holds on
        to the one that it began with.
        """
        self._run.settle(Cause("internal", message))
        if self._fuel_left is None:
            self._fuel_left = self._store.get_fuel()
        self._store.set_fuel(0)

    @property
    def fuel_used(self) -> int:
        left = self._store.get_fuel() if self._fuel_left is None else self._fuel_left
        return self.limits.fuel - left

    def _function(self, index: int, arity: int) -> Func:
        table = self._table()
        function = None if table is None else table.get(self._store, index)
        if not isinstance(function, Func):
            raise Fault(Errno.EINVAL)
        if not _is_of(function.type(self._store), arity):
            raise Fault(Errno.EINVAL)
        return function

    def _table(self) -> Table | None:
        named = [self.exports.get(name) for name in _TABLES]
        return next((one for one in (*named, *self.exports.values()) if isinstance(one, Table)), None)


def _is_of(found: FuncType, arity: int) -> bool:
    i32 = ValType.i32()
    return [*found.params] == [i32] * arity and [*found.results] == [i32]
