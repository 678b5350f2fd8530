"""How a call of a guest fails: the numbers, and what is raised within functions of ours on the way to one.

The descriptors of one guest: numbers from 1000 up that are never used twice, and what they stand for.

One that is closed is gone: a number that stands for nothing any more is as bad as one that never did.

The calls between guest and host: their types, their errors, and what a call has in hand.

Pointers, lengths and descriptors are 32 bits wide, and signed as they arrive: whoever uses one as an address
goes through `Guest`. A function of ours never raises into wasmtime, whose bindings would hand the exception
to any guest of any thread: what is raised within is caught by the one trampoline and becomes a number.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar

from toolgate.model.invocations import LogLevel
from toolgate.model.tasks import WorkloadLimits


class Errno(IntEnum):
    """Linux's numbers; a call returns one negated."""

    EPERM = 1
    ENOENT = 2
    EIO = 5
    E2BIG = 7
    EBADF = 9
    EAGAIN = 11
    ENOMEM = 12
    EACCES = 13
    EFAULT = 14
    EINVAL = 22
    EMFILE = 24
    ENOSPC = 28
    EPIPE = 32
    ENOSYS = 38
    ENOTSUP = 95
    ECONNRESET = 104
    ENOTCONN = 107
    ETIMEDOUT = 110
    ECANCELED = 125


class HostcallFault(Exception):
    """The call fails with this number. Raised within functions of ours only; the trampoline takes it."""

    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.name)
        self.errno = errno


class RunStopped(Exception):
    """The run is to end: unwinds what a call is at. The trampoline takes it; the guest runs no further."""


FIRST_FD: Final = 1_000
LAST_FD: Final = 2**31 - 1
"""Descriptors are 32 bits wide and signed."""

EPOLLIN: Final = 0x1
EPOLLOUT: Final = 0x4
EPOLLERR: Final = 0x8
EPOLLHUP: Final = 0x10


class FdEntry:
    """What a descriptor stands for; each kind of them is a class of its own."""

    kind: ClassVar[str]
    """As `spear_fd_ctl` names it."""

    def __init__(self) -> None:
        self.flags: frozenset[str] = frozenset()
        self.last_error: Mapping[str, object] | None = None
        """What `spear_fd_ctl` says of the last call on it that failed: code, message, retryable."""

    def poll_mask(self) -> int:
        """What it is ready for now."""
        return 0

    def metrics(self) -> Mapping[str, object]:
        """What `spear_fd_ctl` tells of its use."""
        return {}

    def status(self) -> Mapping[str, object]:
        """What `spear_fd_ctl` tells of it beyond what every kind has."""
        return {}

    def narrow(self, data: bytes) -> None:  # noqa: ARG002, kinds with a policy read it
        """Take away from what it may do, as the JSON in `data` says. Fault EINVAL where it has no policy."""
        raise HostcallFault(Errno.EINVAL)

    def close(self) -> None:
        """Let go of what it holds. Happens once, and cannot fail."""


E = TypeVar("E", bound=FdEntry)


class FdTable:
    """All that are open; not more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = FIRST_FD
        self._entries: dict[int, FdEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, entry: FdEntry) -> int:
        """The number of `entry` from now on. Fault EMFILE where there are too many."""
        self.check_room()
        fd, self._next = self._next, self._next + 1
        self._entries[fd] = entry
        return fd

    def check_room(self) -> None:
        """Fault EMFILE where `open` would: for before a call has any effect."""
        if len(self._entries) >= self._most or self._next > LAST_FD:
            raise HostcallFault(Errno.EMFILE)

    def get(self, fd: int, kind: type[E]) -> E:
        """What `fd` stands for. Fault EBADF where that is nothing, or of another kind."""
        entry = self._entries.get(fd)
        if not isinstance(entry, kind):
            raise HostcallFault(Errno.EBADF)
        return entry

    def close(self, fd: int, kind: type[FdEntry] = FdEntry) -> None:
        """Fault EBADF, as `get`."""
        entry = self.get(fd, kind)
        del self._entries[fd]
        entry.close()

    def close_all(self) -> None:
        """At the end of a run."""
        while self._entries:
            _, entry = self._entries.popitem()
            entry.close()

    def entries(self) -> Mapping[int, FdEntry]:
        """By their numbers."""
        return self._entries


SPEAR: Final = "spear"
WASI: Final = "wasi_snapshot_preview1"

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")

OnThread = Callable[[Callable[[], R]], Awaitable[R]]
"""From the event loop: has a function run on the guest's own thread, where the guest can be called."""


class GuestOutput(Protocol):
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
    def output(self) -> GuestOutput: ...
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


def negate_errno(errno: Errno) -> int:
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
    failure: Callable[[Errno], int] = negate_errno
    """The result that says so: WASI's functions have numbers of their own for it."""
