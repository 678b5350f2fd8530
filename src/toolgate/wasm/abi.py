"""The calls between guest and host: their types, their errors, and what a call has in hand.

Pointers, lengths and descriptors are 32 bits wide, and signed as they arrive: whoever uses one as an address
goes through `Guest`. A function of ours never raises into wasmtime, whose bindings would hand the exception
to any guest of any thread: what is raised within is caught by the one trampoline and becomes a number.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from toolgate.model.invocations import LogLevel
from toolgate.model.workloads import WorkloadLimits
from toolgate.wasm.faults import Errno
from toolgate.wasm.fds import FdTable

SPEAR: Final = "spear"
WASI: Final = "wasi_snapshot_preview1"

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")

OnThread = Callable[[Callable[[], R]], Awaitable[R]]
"""From the event loop: has a function run on the guest's own thread, where the guest can be called."""


class Output(Protocol):
    """What a guest writes, bounded."""

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Bytes of `stdout` or `stderr`; past the limit they are dropped."""

    def log(self, level: LogLevel, text: str) -> None:
        """One line of its log."""


class Guest(Protocol[C_co]):
    """What a call has of the guest that makes it. Good during that call, on the guest's thread.

    Calls of all guests come one at a time: one that has to wait does so by `sleep`, `wait` or `serve` alone.
    """

    @property
    def context(self) -> C_co:
        """What the run was begun with."""

    @property
    def limits(self) -> WorkloadLimits: ...
    @property
    def fds(self) -> FdTable: ...
    @property
    def output(self) -> Output: ...
    @property
    def args(self) -> tuple[bytes, ...]: ...
    @property
    def env(self) -> tuple[bytes, ...]: ...

    def read_input(self, most: int) -> bytes:
        """The next bytes of standard input; empty at its end."""

    def read(self, pointer: int, length: int, *, most: int) -> bytes:
        """Fault EFAULT outside the memory, EINVAL where `length` is more than `most`."""

    def read_u32(self, pointer: int) -> int:
        """Fault EFAULT."""

    def write(self, pointer: int, data: bytes) -> None:
        """All of it, or Fault EFAULT and nothing."""

    def write_u32(self, pointer: int, value: int) -> None:
        """Fault EFAULT."""

    def check_out(self, out_pointer: int, out_length_pointer: int) -> int:
        """The capacity of a buffer that can be written; Fault EFAULT. For before a call has any effect."""

    def put_out(self, out_pointer: int, out_length_pointer: int, data: bytes) -> int:
        """Hand over `data` by the convention of buffers: its length; Fault ENOSPC with that length stored."""

    def call_table(self, index: int, *args: int) -> int:
        """Call the function at `index` of the guest's table; Fault EINVAL where none of that type is."""

    def sleep(self, seconds: float | None) -> None:
        """Wait so long (None: for ever), or until the run is to end: Stopped."""

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have `work` done on the event loop, and wait for it. Raises what it raises, and Stopped."""

    def serve(self, work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]) -> T:
        """As `wait`, for work that calls back into the guest meanwhile."""

    def exit(self, code: int) -> None:
        """The guest ends by its own will. Raises Stopped."""


def negated(errno: Errno) -> int:
    """How a function of ours says that it failed."""
    return -errno


@dataclass(frozen=True, slots=True)
class HostFunction(Generic[C]):
    """A function that guests may import. In `params` and `result`, `i` is 32 bits wide and `I` 64."""

    module: str
    name: str
    params: str
    result: str
    call: Callable[..., int | None]
    """Gets a `Guest[C]` and its arguments."""
    failure: Callable[[Errno], int] = negated
    """The result that says so: WASI's functions have numbers of their own for it."""
