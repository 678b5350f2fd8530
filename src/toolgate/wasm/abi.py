"""The calls between guest and host: error numbers, descriptors, and what a call may use of its guest.

Pointers, lengths and descriptors are 32 bits wide, and signed as they arrive: only `Guest` uses one as an
address. A host function never raises into wasmtime, whose bindings would raise the exception in any guest of
any thread: the one trampoline turns it into a number.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar

from toolgate.model.invocations import LogLevel
from toolgate.model.tasks import WorkloadLimits


class Errno(IntEnum):
    """The numbers of Linux; a call returns one negated."""

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
    """The call fails with this number. Host functions raise it; the trampoline catches it."""

    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.name)
        self.errno = errno


class RunStopped(Exception):
    """The run has to end: unwinds a call. The trampoline catches it; the guest runs no further."""


FIRST_FD: Final = 1_000
"""Far above WASI's 0 to 2. Numbers are never used twice, so a closed one stays invalid."""
LAST_FD: Final = 2**31 - 1
"""Descriptors are 32 bits wide and signed."""

EPOLLIN: Final = 0x1
EPOLLOUT: Final = 0x4
EPOLLERR: Final = 0x8
EPOLLHUP: Final = 0x10


class FdEntry:
    """What a descriptor refers to; each kind is a subclass."""

    kind: ClassVar[str]
    """Its name in `spear_fd_ctl`."""

    def __init__(self) -> None:
        self.flags: frozenset[str] = frozenset()
        self.last_error: Mapping[str, object] | None = None
        """The last failed call on it, for `spear_fd_ctl`: code, message, retryable."""

    def poll_mask(self) -> int:
        """The events that it is ready for."""
        return 0

    def metrics(self) -> Mapping[str, object]:
        """Its usage, for `spear_fd_ctl`."""
        return {}

    def status(self) -> Mapping[str, object]:
        """Members of its status beyond those of every kind, for `spear_fd_ctl`."""
        return {}

    def narrow(self, data: bytes) -> None:  # noqa: ARG002, kinds with a policy read it
        """Narrow its policy by the JSON in `data`. EINVAL for a kind without a policy."""
        raise HostcallFault(Errno.EINVAL)

    def close(self) -> None:
        """Release what it holds. Called once; cannot fail."""


E = TypeVar("E", bound=FdEntry)


class FdTable:
    """The open descriptors of one guest, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = FIRST_FD
        self._entries: dict[int, FdEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, entry: FdEntry) -> int:
        """Give `entry` a number. EMFILE if there are too many."""
        self.check_room()
        fd, self._next = self._next, self._next + 1
        self._entries[fd] = entry
        return fd

    def check_room(self) -> None:
        """EMFILE if `open` would fail: to check before a call has any effect."""
        if len(self._entries) >= self._most or self._next > LAST_FD:
            raise HostcallFault(Errno.EMFILE)

    def get(self, fd: int, kind: type[E]) -> E:
        """The entry of `fd`. EBADF if it is not open, or of another kind."""
        entry = self._entries.get(fd)
        if not isinstance(entry, kind):
            raise HostcallFault(Errno.EBADF)
        return entry

    def close(self, fd: int, kind: type[FdEntry] = FdEntry) -> None:
        """EBADF as for `get`."""
        entry = self.get(fd, kind)
        del self._entries[fd]
        entry.close()

    def close_all(self) -> None:
        """Close all, at the end of a run."""
        while self._entries:
            _, entry = self._entries.popitem()
            entry.close()

    def entries(self) -> Mapping[int, FdEntry]:
        """The entries by number."""
        return self._entries


SPEAR: Final = "spear"
WASI: Final = "wasi_snapshot_preview1"

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")

OnThread = Callable[[Callable[[], R]], Awaitable[R]]
"""From the event loop: runs a function on the guest's own thread, where the guest can be called."""


class GuestOutput(Protocol):
    """The output of a guest, bounded."""

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Write to `stdout` or `stderr`; bytes past the limit are dropped."""

    def log(self, level: LogLevel, text: str) -> None:
        """Write a line to the log."""


class Guest(Protocol[C_co]):
    """What a host function may use of the guest that calls it. Valid during that call, on the guest's thread.

    Calls of all guests run one at a time: a call may block only in `sleep`, `wait` and `serve`. Methods raise
    a `HostcallFault` with the number given.
    """

    @property
    def context(self) -> C_co:
        """That of the job."""

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
        """Read the next bytes of standard input; empty at its end."""

    def read(self, pointer: int, length: int, *, most: int) -> bytes:
        """EFAULT outside the memory, EINVAL if `length` is more than `most`."""

    def read_u32(self, pointer: int) -> int:
        """EFAULT outside the memory."""

    def write(self, pointer: int, data: bytes) -> None:
        """EFAULT outside the memory; then nothing is written."""

    def write_u32(self, pointer: int, value: int) -> None:
        """EFAULT outside the memory."""

    def check_out(self, out_pointer: int, out_length_pointer: int) -> int:
        """The capacity of an output buffer. EFAULT; to check before a call has any effect."""

    def put_out(self, out_pointer: int, out_length_pointer: int, data: bytes) -> int:
        """Write `data` to an output buffer; its length. ENOSPC if it is too small, with the length stored."""

    def call_table(self, index: int, *args: int) -> int:
        """Call the function at `index` of the guest's table. EINVAL if it has another type."""

    def sleep(self, seconds: float | None) -> None:
        """Sleep (None: for ever). Raises RunStopped when the run has to end."""

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the event loop, and wait for it. Raises what it raises, and RunStopped."""

    def serve(self, work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]) -> T:
        """As `wait`, for work that calls back into the guest."""

    def exit(self, code: int) -> None:
        """End the guest with this exit code. Raises RunStopped."""


def negate_errno(errno: Errno) -> int:
    """The result of a failed call, unless it is one of WASI."""
    return -errno


@dataclass(frozen=True, slots=True)
class HostFunction(Generic[C]):
    """A function that guests may import. In `params` and `result`, `i` is an i32 and `I` an i64."""

    module: str
    name: str
    params: str
    result: str
    call: Callable[..., int | None]
    """Gets a `Guest[C]` and the arguments."""
    failure: Callable[[Errno], int] = negate_errno
    """The result for an error: WASI has numbers of its own."""
