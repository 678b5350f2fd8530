"""`spear_epoll_*` and `spear_fd_ctl`: waiting for descriptors, and what there is to know of one.

Calls are answered before they return, so nothing becomes ready while a guest waits: a wait with nothing ready
is a sleep.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from toolgate.model.raw import UNREADABLE
from toolgate.surfaces.wasm.context import TaskContext, TaskGuest
from toolgate.surfaces.wasm.fd_policy import MAX_POLICY_BYTES
from toolgate.surfaces.wasm.texts import decode_text
from toolgate.wasm.abi import SPEAR, HostFunction
from toolgate.wasm.faults import Errno, Fault
from toolgate.wasm.fds import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, Entry, FdTable
from toolgate.wasm.signatures import host_functions

EPOLL_CTL_ADD: Final = 1
EPOLL_CTL_MOD: Final = 2
EPOLL_CTL_DEL: Final = 3
SET_FLAGS: Final = 1
GET_FLAGS: Final = 2
GET_KIND: Final = 3
GET_STATUS: Final = 4
GET_METRICS: Final = 5
NARROW: Final = 100
"""Ours, and not SPEAR's, whose commands are below a hundred."""
MAX_FLAGS_BYTES: Final = 4_096

_RECORD: Final = struct.Struct("<ii")
_ALWAYS: Final = EPOLLERR | EPOLLHUP
"""What is told whether or not it was asked for."""
_MASK_NAMES: Final = {
    EPOLLIN: "EPOLLIN",
    EPOLLOUT: "EPOLLOUT",
    EPOLLERR: "EPOLLERR",
    EPOLLHUP: "EPOLLHUP",
}
_FLAGS: Final = frozenset({"O_NONBLOCK"})


class Epoll(Entry):
    """Descriptors that are watched, each with what for."""

    kind = "Epoll"

    def __init__(self) -> None:
        super().__init__()
        self.interest: dict[int, int] = {}

    def add(self, fd: int, events: int, fds: FdTable) -> None:
        # Those that were closed meanwhile are no longer watched, and do not pile up.
        if len(self.interest) >= len(fds):
            self.interest = {one: wanted for one, wanted in self.interest.items() if one in fds.entries()}
        self.interest[fd] = events

    def ready(self, fds: FdTable) -> list[tuple[int, int]]:
        """Descriptors with what they are ready for, in order."""
        entries = fds.entries()
        found = (
            (fd, entries[fd].poll_mask() & (self.interest[fd] | _ALWAYS))
            for fd in sorted(self.interest)
            if fd in entries
        )
        return [(fd, mask) for fd, mask in found if mask]


def spear_epoll_create(guest: TaskGuest) -> int:
    return guest.fds.open(Epoll())


def spear_epoll_ctl(guest: TaskGuest, epfd: int, op: int, fd: int, events: int) -> int:
    """Watch `fd`, for something else, or no longer."""
    epoll = guest.fds.get(epfd, Epoll)
    if isinstance(guest.fds.get(fd, Entry), Epoll):
        raise Fault(Errno.EINVAL)
    if op == EPOLL_CTL_ADD:
        epoll.add(fd, events, guest.fds)
        return 0
    if op not in (EPOLL_CTL_MOD, EPOLL_CTL_DEL):
        raise Fault(Errno.EINVAL)
    if fd not in epoll.interest:
        raise Fault(Errno.ENOENT)
    if op == EPOLL_CTL_MOD:
        epoll.interest[fd] = events
    else:
        del epoll.interest[fd]
    return 0


def spear_epoll_wait(guest: TaskGuest, epfd: int, out: int, out_length: int, timeout_ms: int) -> int:
    """How many are ready; as many records as there is room for."""
    epoll = guest.fds.get(epfd, Epoll)
    room = guest.check_out(out, out_length) // _RECORD.size
    if room == 0:
        guest.write_u32(out_length, _RECORD.size)
        raise Fault(Errno.ENOSPC)
    ready = epoll.ready(guest.fds)[:room]
    if not ready and timeout_ms:
        guest.sleep(None if timeout_ms < 0 else timeout_ms / 1e3)
    guest.put_out(out, out_length, b"".join(_RECORD.pack(fd, mask) for fd, mask in ready))
    return len(ready)


def spear_epoll_close(guest: TaskGuest, epfd: int) -> int:
    guest.fds.close(epfd, Epoll)
    return 0


def spear_fd_ctl(guest: TaskGuest, fd: int, command: int, argument: int, argument_length: int) -> int:
    """Set the flags of a descriptor, narrow it, or tell something of it."""
    entry = guest.fds.get(fd, Entry)
    if command == SET_FLAGS:
        length = guest.read_u32(argument_length)
        entry.flags = _changed(entry.flags, guest.read(argument, length, most=MAX_FLAGS_BYTES))
        return 0
    if command == NARROW:
        length = guest.read_u32(argument_length)
        data = guest.read(argument, length, most=MAX_POLICY_BYTES)
        decode_text(data)
        entry.narrow(data)
        return 0
    tell = _TOLD.get(command)
    if tell is None:
        raise Fault(Errno.EINVAL)
    guest.check_out(argument, argument_length)
    return guest.put_out(argument, argument_length, msgspec.json.encode(tell(entry)))


class _Change(msgspec.Struct):
    set: frozenset[str] = frozenset()
    clear: frozenset[str] = frozenset()


_decode_change = msgspec.json.Decoder(_Change).decode


def _changed(flags: frozenset[str], data: bytes) -> frozenset[str]:
    """`flags` as the JSON in `data` wants them. Fault EINVAL."""
    decode_text(data)
    try:
        change = _decode_change(data)
    except UNREADABLE as exc:
        raise Fault(Errno.EINVAL) from exc
    if not change.set | change.clear <= _FLAGS:
        raise Fault(Errno.EINVAL)
    return (flags | change.set) - change.clear


def _status(entry: Entry) -> Mapping[str, object]:
    mask = entry.poll_mask()
    return {
        "kind": entry.kind,
        "flags": sorted(entry.flags),
        "poll_mask": [name for bit, name in _MASK_NAMES.items() if mask & bit],
        "closed": False,
        "last_error": entry.last_error,
        **entry.status(),
    }


_TOLD: Final[Mapping[int, Callable[[Entry], Mapping[str, object]]]] = {
    GET_FLAGS: lambda entry: {"flags": sorted(entry.flags)},
    GET_KIND: lambda entry: {"kind": entry.kind},
    GET_STATUS: _status,
    GET_METRICS: lambda entry: entry.metrics(),
}

DESCRIPTOR_FUNCTIONS: Final[tuple[HostFunction[TaskContext], ...]] = host_functions(
    SPEAR,
    {
        "spear_epoll_create": spear_epoll_create,
        "spear_epoll_ctl": spear_epoll_ctl,
        "spear_epoll_wait": spear_epoll_wait,
        "spear_epoll_close": spear_epoll_close,
        "spear_fd_ctl": spear_fd_ctl,
    },
)
