"""The interface between guest and host: error numbers, descriptors, and the type of every function.

Pointers, lengths and descriptors arrive as signed 32-bit numbers; only `Guest` uses them as addresses.
Modules are checked against the types before they run. A host function never raises into wasmtime, whose
bindings would raise the exception in any guest of any thread: the trampoline turns it into a number.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from operator import neg
from typing import Any, ClassVar, Final, Generic, TypeVar


class Errno(IntEnum):
    """The numbers of Linux; a call returns one negated."""

    # asm-generic/errno.h, as in a guest's libc.
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
    """A hostcall fails with this number. Host functions raise it; the trampoline catches it."""

    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.name)
        self.errno = errno


class RunStopped(Exception):
    """The run must end: unwinds a hostcall. The trampoline catches it, and the guest does not continue."""


FIRST_FD: Final = 1_000
"""Far above WASI's 0 to 2. Numbers are never reused, so a closed descriptor stays invalid."""
LAST_FD: Final = 2**31 - 1  # descriptors are 32 bits wide and signed

# Bits as in Linux's <sys/epoll.h>.
EPOLLIN: Final = 0x1
EPOLLOUT: Final = 0x4
EPOLLERR: Final = 0x8
EPOLLHUP: Final = 0x10


class FdEntry:
    """The object behind a descriptor; each kind is a subclass."""

    kind: ClassVar[str]
    """Its name in `spear_fd_ctl`."""

    def __init__(self) -> None:
        self.flags: frozenset[str] = frozenset()
        self.last_error: Mapping[str, object] | None = None
        """The last failed call on the descriptor, for `spear_fd_ctl`: code, message, retryable."""

    def poll_mask(self) -> int:
        """The events that are ready."""
        return 0

    def metrics(self) -> Mapping[str, object]:
        """The usage of the descriptor, for `spear_fd_ctl`."""
        return {}

    def status(self) -> Mapping[str, object]:
        """Additional members of its status, for `spear_fd_ctl`."""
        return {}

    def narrow(self, data: bytes) -> None:  # noqa: ARG002, kinds with a policy read it
        """Narrow the descriptor's policy by the JSON in `data`. EINVAL for a kind without a policy."""
        raise HostcallFault(Errno.EINVAL)

    def close(self) -> None:
        """Release its resources. Called once; never fails."""


E = TypeVar("E", bound=FdEntry)


class FdTable:
    """The open descriptors of one guest, at most `most`."""

    def __init__(self, most: int, *, last: int = LAST_FD) -> None:
        self._most = most
        self._last = last
        self._next = FIRST_FD
        self.entries: dict[int, FdEntry] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def open(self, entry: FdEntry) -> int:
        """Give `entry` a number. EMFILE at the limit."""
        self.check_room()
        fd, self._next = self._next, self._next + 1
        self.entries[fd] = entry
        return fd

    def check_room(self) -> None:
        """EMFILE if `open` would fail. Check it before a call has any effect."""
        if len(self.entries) >= self._most or self._next > self._last:
            raise HostcallFault(Errno.EMFILE)

    def get(self, fd: int, kind: type[E]) -> E:
        """The entry of `fd`. EBADF if it is not open or has another kind."""
        entry = self.entries.get(fd)
        if not isinstance(entry, kind):
            raise HostcallFault(Errno.EBADF)
        return entry

    def close(self, fd: int, kind: type[FdEntry] = FdEntry) -> None:
        """Close `fd`. EBADF as for `get`."""
        entry = self.get(fd, kind)
        del self.entries[fd]
        entry.close()

    def close_all(self) -> None:
        """Close all descriptors, at the end of a run."""
        while self.entries:
            _, entry = self.entries.popitem()
            entry.close()


SPEAR: Final = "spear"
WASI: Final = "wasi_snapshot_preview1"

C = TypeVar("C")
R = TypeVar("R")

OnThread = Callable[[Callable[[], R]], Awaitable[R]]
"""Called on the event loop: runs a function on the guest's thread, where it can call the guest."""


@dataclass(frozen=True, slots=True)
class HostFunction(Generic[C]):
    """A function that guests may import. In `params` and `result`, `i` is an i32 and `I` an i64."""

    module: str
    name: str
    params: str
    result: str
    call: Callable[..., int | None]
    """The implementation. Gets a `Guest[C]` and the arguments."""
    failure: Callable[[Errno], int] = neg
    """Converts an error to a result: WASI has other numbers."""


Signature = tuple[str, str]
"""The types of the parameters, and the type of the result; empty without a result."""

# Functions by type; `i` is an i32 and `I` an i64, as in `HostFunction`.
_SPEAR_FUNCTIONS: Final[Mapping[Signature, tuple[str, ...]]] = {
    ("", "i"): ("cchat_create", "spear_epoll_create"),
    ("", "I"): ("time_now_ms", "wall_time_s", "random_i64"),
    ("i", ""): ("sleep_ms",),
    ("i", "i"): ("cchat_close", "mcp_close", "spear_epoll_close"),
    ("ii", "i"): ("cchat_send", "mcp_open", "mcp_registry_list"),
    ("iii", "i"): ("cchat_recv", "log", "mcp_list_tools"),
    ("iiii", "i"): (
        *("cchat_ctl", "cchat_write_fn", "mcp_registry_get"),
        *("spear_epoll_ctl", "spear_epoll_wait", "spear_fd_ctl"),
    ),
    ("iiiii", "i"): ("cchat_write_msg",),
    ("iiiiiii", "i"): ("mcp_call_tool",),
}

# As in wasi_snapshot_preview1.witx.
_WASI_FUNCTIONS: Final[Mapping[Signature, tuple[str, ...]]] = {
    ("", "i"): ("sched_yield",),
    ("i", ""): ("proc_exit",),
    ("i", "i"): ("fd_close", "fd_datasync", "fd_sync", "proc_raise"),
    ("iI", "i"): ("fd_filestat_set_size",),
    ("iII", "i"): ("fd_allocate", "fd_fdstat_set_rights"),
    ("iIIi", "i"): ("fd_advise", "fd_filestat_set_times"),
    ("iIi", "i"): ("clock_time_get",),
    ("iIii", "i"): ("fd_seek",),
    ("ii", "i"): (
        *("args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "clock_res_get", "random_get"),
        *("fd_fdstat_get", "fd_fdstat_set_flags", "fd_filestat_get", "fd_prestat_get", "fd_renumber"),
        *("fd_tell", "sock_shutdown"),
    ),
    ("iii", "i"): (
        *("fd_prestat_dir_name", "path_create_directory", "path_remove_directory", "path_unlink_file"),
        "sock_accept",
    ),
    ("iiiIi", "i"): ("fd_pread", "fd_pwrite", "fd_readdir"),
    ("iiii", "i"): ("fd_read", "fd_write", "poll_oneoff"),
    ("iiiiIIi", "i"): ("path_filestat_set_times",),
    ("iiiii", "i"): ("path_filestat_get", "path_symlink", "sock_send"),
    ("iiiiiIIii", "i"): ("path_open",),
    ("iiiiii", "i"): ("path_readlink", "path_rename", "sock_recv"),
    ("iiiiiii", "i"): ("path_link",),
}

ABI_SIGNATURES: Final[Mapping[tuple[str, str], Signature]] = {
    (module, name): signature
    for module, functions in ((SPEAR, _SPEAR_FUNCTIONS), (WASI, _WASI_FUNCTIONS))
    for signature, names in functions.items()
    for name in names
}


def host_functions(
    module: str,
    calls: Mapping[str, Callable[..., int | None]],
    *,
    failure: Callable[[Errno], int] = neg,
) -> tuple[HostFunction[Any], ...]:
    """Make the host functions of `module` from their implementations; see `HostFunction`."""
    return tuple(
        HostFunction(module, name, *ABI_SIGNATURES[module, name], call, failure)
        for name, call in calls.items()
    )
