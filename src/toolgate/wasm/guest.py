"""A running guest: its memory, its hostcalls, and the one trampoline into host functions.

No exception ever passes the trampoline. The bindings store a callback's exception in one place for the whole
process, and raise it in the next thread that leaves a guest: one guest's failure would end another guest.

Pointers and lengths come from the guest: they are untrusted and signed. wasmtime's accessors truncate ranges
beyond the end, and count negative pointers from there; here both are EFAULT. The size of the memory is read
each time, because it may have grown.
"""

import asyncio
import ctypes
import logging
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

from wasmtime import Caller, Func, Memory, Store, Table, Trap, TrapCode, ValType

from toolgate.errors import ToolgateError
from toolgate.model.invocations import EndedBy, InvocationResult
from toolgate.wasm.abi import Errno, FdTable, HostcallFault, HostFunction, OnThread, RunStopped
from toolgate.wasm.run import GatePass, GuestRun, HostcallGate, LoopCall, build_ending, sleep_interruptibly

MAX_MESSAGE: Final = 2_000  # characters of a trap's message, which contains names from the guest
MAX_DEPTH: Final = 4
"""How deeply calls into the guest may nest in hostcalls: each level uses the host's stack."""
INTERNAL_MESSAGE: Final = "a hostcall failed inside Toolgate: this is a bug; the node's log has details"
_TABLES: Final = ("__indirect_function_table", "table")
_U32_MAX: Final = 0xFFFF_FFFF  # the width of pointers and lengths
_U32: Final = struct.Struct("<I")
_LIMITS: Final[dict[TrapCode | None, tuple[EndedBy, str]]] = {
    TrapCode.OUT_OF_FUEL: (
        "out_of_fuel",
        "the run used up its fuel: raise the workload's `limits.fuel`, or do less",
    ),
    TrapCode.STACK_OVERFLOW: ("stack_overflow", "the guest's stack overflowed: it recurses too deeply"),
}

log = logging.getLogger(__name__)

C = TypeVar("C")
T = TypeVar("T")


def classify_trap(trap: Trap) -> InvocationResult:
    """The cause of a run's end by a trap, unless it ended earlier."""
    try:
        code = trap.trap_code
    except ValueError:  # the bindings do not know the code
        code = None
    if code in _LIMITS:
        return build_ending(*_LIMITS[code])
    # The cause first, then the place.
    where, _, cause = trap.message.partition("Caused by:")
    text = f"{cause.strip() or where.strip()}\n{where.strip()}" if cause else where.strip()
    return build_ending("trap", text.removeprefix("wasm trap: ")[:MAX_MESSAGE])


class GuestMemory:
    """The guest's exported `memory`; without one, every pointer is invalid. Raises HostcallFault."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory: Memory | None = None
        self._is_adopted = False

    def adopt_memory(self, exported: object) -> None:
        self._is_adopted = True
        self._memory = exported if isinstance(exported, Memory) else None

    @property
    def memory_bytes(self) -> int:
        return 0 if self._memory is None else self._memory.data_len(self._store)

    def read(self, pointer: int, length: int, *, most: int) -> bytes:
        """Read bytes. EFAULT outside the memory, EINVAL if `length` is more than `most`."""
        pointer, length = pointer & _U32_MAX, length & _U32_MAX
        address = self._address(pointer, length)
        if length > most:
            raise HostcallFault(Errno.EINVAL)
        return ctypes.string_at(address, length) if length else b""

    def write(self, pointer: int, data: bytes) -> None:
        """Write bytes, all or none. EFAULT outside the memory."""
        address = self._address(pointer & _U32_MAX, len(data))
        if data:
            ctypes.memmove(address, data, len(data))

    def read_u32(self, pointer: int) -> int:
        value: int = _U32.unpack(self.read(pointer, _U32.size, most=_U32.size))[0]
        return value

    def write_u32(self, pointer: int, value: int) -> None:
        self.write(pointer, _U32.pack(value & _U32_MAX))

    def check_out(self, out_pointer: int, out_length_pointer: int) -> int:
        """The capacity of an output buffer. EFAULT. Check it before a call has any effect."""
        capacity = self.read_u32(out_length_pointer)
        self._address(out_pointer & _U32_MAX, capacity)
        return capacity

    def put_out(self, out_pointer: int, out_length_pointer: int, data: bytes) -> int:
        """Write `data` to an output buffer. Returns its length. ENOSPC if the buffer is too small; the needed
        length is stored."""
        fits = len(data) <= self.check_out(out_pointer, out_length_pointer)
        if fits:
            self.write(out_pointer, data)
        self.write_u32(out_length_pointer, len(data))
        if not fits:
            raise HostcallFault(Errno.ENOSPC)
        return len(data)

    def _address(self, pointer: int, length: int) -> int:
        """The address in this process; 0 if `length` is 0."""
        memory = self._memory
        if memory is None or pointer + length > memory.data_len(self._store):
            raise HostcallFault(Errno.EFAULT)
        if not length:
            return 0
        return ctypes.addressof(memory.data_ptr(self._store).contents) + pointer


class Guest(GuestMemory, Generic[C]):
    """One guest in its store, on the thread of its slot: the interface for host functions.

    Hostcalls of all guests run one at a time: a hostcall may block only in `sleep`, `wait` and `serve`.
    """

    def __init__(
        self, run: GuestRun[C], store: Store, loop: asyncio.AbstractEventLoop, gate: HostcallGate
    ) -> None:
        super().__init__(store)
        job, workload = run.job, run.job.workload
        self.context = job.context
        self.limits = workload.limits
        self.output = run.output
        self.fds = FdTable(self.limits.max_fds)
        self.args = tuple(arg.encode(errors="replace") for arg in (job.name, *workload.args))
        self.env = tuple(f"{name}={value}".encode(errors="replace") for name, value in workload.env.items())
        self.exports: Mapping[str, object] = {}
        """The guest's exports; empty until it is instantiated."""
        self.hostcalls = 0
        self.host_faults = 0
        self.gate = GatePass(gate, lambda: run.is_ending)
        self._run = run
        self._loop = loop
        self._input_at = 0
        self._depth = 0
        self._fuel_left: int | None = None

    def read_input(self, most: int) -> bytes:
        """Read the next bytes of standard input; empty at its end."""
        start, self._input_at = self._input_at, self._input_at + max(most, 0)
        return self._run.job.input[start : self._input_at]

    def call_table(self, index: int, *args: int) -> int:
        """Call the function at `index` of the guest's table. EINVAL if it has another type."""
        named = [self.exports.get(name) for name in _TABLES]
        table = next((one for one in (*named, *self.exports.values()) if isinstance(one, Table)), None)
        function = None if table is None else table.get(self._store, index & _U32_MAX)
        if not isinstance(function, Func):
            raise HostcallFault(Errno.EINVAL)
        found, i32 = function.type(self._store), ValType.i32()
        if [*found.params] != [i32] * len(args) or [*found.results] != [i32]:
            raise HostcallFault(Errno.EINVAL)
        self._check_depth()
        self._depth += 1
        try:
            with self.gate.left():
                result: int = function(self._store, *args)
        except Trap as trap:
            self._run.settle(classify_trap(trap))
            raise RunStopped from None
        finally:
            self._depth -= 1
        if self._run.is_ending:
            raise RunStopped
        return result

    def sleep(self, seconds: float | None) -> None:
        """Sleep (None: forever). Raises RunStopped when the run must end."""
        sleep_interruptibly(self._run, self.gate, seconds)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the event loop, and wait for it. Raises its errors, and RunStopped."""
        return LoopCall(self._loop, self.gate, lambda _: work()).wait(self._run)

    def serve(self, work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]) -> T:
        """As `wait`, for work that calls back into the guest."""
        self._check_depth()
        return LoopCall(self._loop, self.gate, work).wait(self._run)

    def exit(self, code: int) -> None:
        """End the guest with this exit code. Raises RunStopped."""
        self._run.settle(build_ending("exit", exit_code=code))
        raise RunStopped

    def enter(self, caller: Caller) -> None:
        """Begin a hostcall. Raises RunStopped if the run is ending and the guest still runs."""
        if self._run.is_ending:
            raise RunStopped
        self.hostcalls += 1
        if not self._is_adopted:  # a guest may make hostcalls before `_start`
            self.adopt_memory(caller.get("memory"))

    def halt(self, message: str) -> None:
        """Stop the guest. Unless the run has another cause already, the host is at fault.

        Without fuel, the guest traps as soon as it continues. An epoch deadline would be too late: running
        code keeps the deadline that it started with.
        """
        self._run.settle(build_ending("internal", message))
        if self._fuel_left is None:
            self._fuel_left = self._store.get_fuel()
        self._store.set_fuel(0)

    @property
    def fuel_used(self) -> int:
        left = self._store.get_fuel() if self._fuel_left is None else self._fuel_left
        return self.limits.fuel - left

    def _check_depth(self) -> None:
        if self._depth >= MAX_DEPTH:
            raise HostcallFault(Errno.EAGAIN)


def make_callback(
    function: HostFunction[Any], current: Callable[[], Guest[Any]]
) -> Callable[..., int | None]:
    """Make the callback of `function` for wasmtime; `current` returns the guest that calls."""
    call, has_result = function.call, bool(function.result)
    failures = {errno: function.failure(errno) for errno in Errno} if has_result else {}

    def callback(caller: Caller, *args: int) -> int | None:
        guest = current()
        with guest.gate:
            try:
                guest.enter(caller)
                result = call(guest, *args)
                return _check_result(result) if has_result else None
            except HostcallFault as fault:
                errno = fault.errno
            except ToolgateError as exc:
                errno = find_errno(exc)
            except RunStopped:
                guest.halt(INTERNAL_MESSAGE)  # a run that is ending keeps its cause
                errno = Errno.ECANCELED
            except BaseException:
                log.exception("the hostcall `%s.%s` of a guest failed", function.module, function.name)
                guest.host_faults += 1
                guest.halt(INTERNAL_MESSAGE)
                errno = Errno.EIO
            return failures.get(errno)

    return callback


def find_errno(error: ToolgateError) -> Errno:
    return Errno.__members__.get(error.wire.errno, Errno.EIO)


def _check_result(result: object) -> int:
    if not isinstance(result, int):
        raise TypeError(f"a host function must return a number, not `{result!r}`")
    return result
