"""The supported part of WASI preview 1: arguments, environment, clocks, randomness, standard streams.

All functions exist, so that programs link that never call most of them. There are no files, directories or
sockets: descriptors are 0, 1 and 2, closing one has no effect, and any other is invalid. Streams look like a
terminal, so that C libraries flush each line. A single call does a bounded amount of work; longer work is
done in pieces, between which the run can end.
"""

import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from toolgate.wasm.abi import WASI, Errno, HostcallFault, HostFunction, host_functions
from toolgate.wasm.guest import Guest

AnyGuest = Guest[Any]
Call = Callable[..., int | None]

MAX_IOVECS: Final = 1_024  # POSIX's IOV_MAX on Linux
MAX_TRANSFER_BYTES: Final = 1_048_576
"""Bytes of one read or write; the guest continues with another call, as with any stream."""
MAX_RANDOM_PIECE: Final = 65_536  # between two pieces the run can end; as in `crypto.getRandomValues`
MAX_SUBSCRIPTIONS: Final = 1_024
"""As many as buffers: far more than a guest without files and sockets needs."""
MAX_SLEEP_NS: Final = 1_000_000 * 1_000_000_000
"""No run lasts that long; a longer wait would overflow the host's clock."""
CLOCKS_NS: Final[Mapping[int, Callable[[], int]]] = {0: time.time_ns, 1: time.monotonic_ns}
"""WASI's clocks, without CPU-time clocks: a thread serves one guest after another."""

_IOVEC: Final = struct.Struct("<II")
_FDSTAT: Final = struct.Struct("<BxHxxxxQQ")
_FILESTAT: Final = struct.Struct("<QQBxxxxxxxQQQQQ")
_SUBSCRIPTION: Final = struct.Struct("<QBxxxxxxxIxxxxQQHxxxxxx")
"""User data and kind; for a clock: its id, timeout, precision, flags; for a stream: its descriptor."""
_EVENT: Final = struct.Struct("<QHBxxxxxQHxxxxxx")
"""User data, error and kind; for a stream: number of bytes, flags."""
_CHARACTER_DEVICE: Final = 2  # `filetype` of preview 1
_RIGHTS: Final = (1 << 1) | (1 << 6) | (1 << 27)
"""Rights to read, write and poll, but not to seek, by which C libraries recognize a terminal."""
_STREAMS: Final[Mapping[int, Literal["stdout", "stderr"]]] = {1: "stdout", 2: "stderr"}
_CLOCK: Final = 0  # `eventtype` of preview 1
_STREAM_KINDS: Final = {1: (0,), 2: (1, 2)}
"""The readable and the writable streams."""
_IS_ABSOLUTE: Final = 1  # `subclockflags` of preview 1


class WasiErrno(IntEnum):
    """The errors of preview 1 that functions here return."""

    # `errno` in wasi_snapshot_preview1.witx.
    SUCCESS = 0
    TOOBIG = 1
    AGAIN = 6
    BADF = 8
    CANCELED = 11
    FAULT = 21
    INVAL = 28
    IO = 29
    NOSYS = 52
    NOTDIR = 54
    NOTSOCK = 57
    NOTSUP = 58
    SPIPE = 70


_WASI_ERRNOS: Final[Mapping[Errno, WasiErrno]] = {
    Errno.E2BIG: WasiErrno.TOOBIG,
    Errno.EAGAIN: WasiErrno.AGAIN,
    Errno.EBADF: WasiErrno.BADF,
    Errno.ECANCELED: WasiErrno.CANCELED,
    Errno.EFAULT: WasiErrno.FAULT,
    Errno.EINVAL: WasiErrno.INVAL,
}


# Arguments and environment


def _write_sizes(guest: AnyGuest, strings: Sequence[bytes], count_pointer: int, size_pointer: int) -> int:
    guest.write_u32(count_pointer, len(strings))
    guest.write_u32(size_pointer, sum(len(one) + 1 for one in strings))
    return WasiErrno.SUCCESS


def _write_strings(guest: AnyGuest, strings: Sequence[bytes], pointers: int, buffer: int) -> int:
    """Write the strings one after another, each with a NUL, and the pointers to their starts."""
    at, starts = buffer, []
    for one in strings:
        starts.append(at & 0xFFFF_FFFF)
        at += len(one) + 1
    guest.write(buffer, b"".join(one + b"\0" for one in strings))
    guest.write(pointers, struct.pack(f"<{len(starts)}I", *starts))
    return WasiErrno.SUCCESS


# Clocks, randomness, and the end


def _write_clock(guest: AnyGuest, clock: int, out: int, *, resolution_ns: int = 0) -> int:
    if clock not in CLOCKS_NS:
        return WasiErrno.INVAL
    guest.write(out, struct.pack("<Q", resolution_ns or CLOCKS_NS[clock]()))
    return WasiErrno.SUCCESS


def _random_get(guest: AnyGuest, buffer: int, length: int) -> int:
    start, end = buffer & 0xFFFF_FFFF, (buffer & 0xFFFF_FFFF) + (length & 0xFFFF_FFFF)
    if end > 1 << 32:
        raise HostcallFault(Errno.EFAULT)
    guest.read(end - 1 if end > start else start, min(1, end - start), most=1)
    for at in range(start, end, MAX_RANDOM_PIECE):
        guest.write(at, os.urandom(min(MAX_RANDOM_PIECE, end - at)))
        guest.sleep(0)
    return WasiErrno.SUCCESS


def _sched_yield(guest: AnyGuest) -> int:
    guest.sleep(0)
    return WasiErrno.SUCCESS


# Streams


def _is_stream(fd: int) -> bool:
    return 0 <= fd <= 2


def _fd_write(guest: AnyGuest, fd: int, iovecs: int, count: int, out: int) -> int:
    if fd not in _STREAMS:
        return WasiErrno.BADF
    guest.read_u32(out)
    data = b"".join(guest.read(*span, most=MAX_TRANSFER_BYTES) for span in _iter_spans(guest, iovecs, count))
    guest.output.write(_STREAMS[fd], data)
    guest.write_u32(out, len(data))
    return WasiErrno.SUCCESS


def _fd_read(guest: AnyGuest, fd: int, iovecs: int, count: int, out: int) -> int:
    if fd != 0:
        return WasiErrno.BADF
    guest.read_u32(out)
    spans = list(_iter_spans(guest, iovecs, count))
    for span in spans:  # check all before input is consumed
        guest.read(*span, most=MAX_TRANSFER_BYTES)
    data = guest.read_input(sum(length for _, length in spans))
    at = 0
    for pointer, length in spans:
        guest.write(pointer, data[at : at + length])
        at += length
    guest.write_u32(out, len(data))
    return WasiErrno.SUCCESS


def _iter_spans(guest: AnyGuest, iovecs: int, count: int) -> Iterator[tuple[int, int]]:
    """Pointers and lengths, of at most `MAX_TRANSFER_BYTES` in total."""
    if not 0 <= count <= MAX_IOVECS:
        raise HostcallFault(Errno.EINVAL)
    left = MAX_TRANSFER_BYTES
    array = guest.read(iovecs, count * _IOVEC.size, most=MAX_IOVECS * _IOVEC.size)
    for pointer, length in _IOVEC.iter_unpack(array):
        yield pointer, min(length, left)
        left -= min(length, left)


def _constant_call(on_stream: WasiErrno) -> Call:
    """A function with the same result for each stream, and BADF for other descriptors."""
    return lambda _guest, fd, *_: on_stream if _is_stream(fd) else WasiErrno.BADF


def _stat_call(pack: Callable[[int], bytes]) -> Call:
    """A function that writes the result of `pack` for a stream."""

    def call(guest: AnyGuest, fd: int, out: int) -> int:
        if not _is_stream(fd):
            return WasiErrno.BADF
        guest.write(out, pack(fd))
        return WasiErrno.SUCCESS

    return call


# `poll_oneoff`, by which guests sleep: it waits for clocks; streams are always ready


class _Subscription(NamedTuple):
    user_data: int
    kind: int
    subject: int
    timeout_ns: int
    precision_ns: int
    flags: int

    @property
    def is_clock(self) -> bool:
        return self.kind == _CLOCK and self.subject in CLOCKS_NS

    def wait_ns(self) -> int:
        """How long to wait from now. Only clocks have a wait."""
        if not self.is_clock:
            return 0
        from_ns = CLOCKS_NS[self.subject]() if self.flags & _IS_ABSOLUTE else 0
        return min(max(0, self.timeout_ns - from_ns), MAX_SLEEP_NS)

    def event(self) -> bytes:
        errno, size = WasiErrno.SUCCESS, 0
        if self.kind == _CLOCK:
            errno = WasiErrno.SUCCESS if self.is_clock else WasiErrno.INVAL
        elif self.subject in _STREAM_KINDS[self.kind]:
            size = 1  # at least, because the end of the input can be read, too
        else:
            errno = WasiErrno.BADF
        return _EVENT.pack(self.user_data, errno, self.kind, size, 0)


def poll_oneoff(guest: AnyGuest, subscriptions: int, events: int, count: int, out: int) -> int:
    """Wait until a subscription is ready. Write the events of all ready ones."""
    if not 0 < count <= MAX_SUBSCRIPTIONS:
        return WasiErrno.INVAL
    array = guest.read(subscriptions, count * _SUBSCRIPTION.size, most=MAX_SUBSCRIPTIONS * _SUBSCRIPTION.size)
    waiting = [_Subscription(*fields) for fields in _SUBSCRIPTION.iter_unpack(array)]
    if any(one.kind != _CLOCK and one.kind not in _STREAM_KINDS for one in waiting):
        raise HostcallFault(Errno.EINVAL)
    guest.read(events, count * _EVENT.size, most=MAX_SUBSCRIPTIONS * _EVENT.size)  # check before waiting
    guest.read_u32(out)
    waits_ns = [one.wait_ns() for one in waiting]
    shortest_ns = min(waits_ns)
    guest.sleep(shortest_ns / 1_000_000_000)
    ready = [one.event() for one, wait_ns in zip(waiting, waits_ns, strict=True) if wait_ns <= shortest_ns]
    guest.write(events, b"".join(ready))
    guest.write_u32(out, len(ready))
    return WasiErrno.SUCCESS


_CONSTANT: Final[Mapping[WasiErrno, tuple[str, ...]]] = {
    WasiErrno.SUCCESS: ("fd_close", "fd_datasync", "fd_fdstat_set_flags", "fd_fdstat_set_rights", "fd_sync"),
    WasiErrno.SPIPE: ("fd_advise", "fd_allocate", "fd_pread", "fd_pwrite", "fd_seek", "fd_tell"),
    WasiErrno.INVAL: ("fd_filestat_set_size",),
    WasiErrno.NOTSUP: ("fd_filestat_set_times", "fd_renumber"),
    WasiErrno.BADF: ("fd_prestat_dir_name", "fd_prestat_get"),
    WasiErrno.NOTSOCK: ("sock_accept", "sock_recv", "sock_send", "sock_shutdown"),
    WasiErrno.NOTDIR: (
        *("fd_readdir", "path_create_directory", "path_filestat_get", "path_filestat_set_times"),
        *("path_link", "path_open", "path_readlink", "path_remove_directory", "path_rename"),
        "path_unlink_file",
    ),
}
"""The functions with the same result for each stream."""
_CALLS: Final[Mapping[str, Call]] = {
    **{name: _constant_call(errno) for errno, names in _CONSTANT.items() for name in names},
    "args_get": lambda guest, *at: _write_strings(guest, guest.args, *at),
    "args_sizes_get": lambda guest, *at: _write_sizes(guest, guest.args, *at),
    "environ_get": lambda guest, *at: _write_strings(guest, guest.env, *at),
    "environ_sizes_get": lambda guest, *at: _write_sizes(guest, guest.env, *at),
    "clock_res_get": lambda guest, clock, out: _write_clock(guest, clock, out, resolution_ns=1),
    "clock_time_get": lambda guest, clock, _precision, out: _write_clock(guest, clock, out),
    "fd_fdstat_get": _stat_call(lambda _: _FDSTAT.pack(_CHARACTER_DEVICE, 0, _RIGHTS, 0)),
    "fd_filestat_get": _stat_call(lambda fd: _FILESTAT.pack(0, fd, _CHARACTER_DEVICE, 1, 0, 0, 0, 0)),
    "fd_read": _fd_read,
    "fd_write": _fd_write,
    "path_symlink": lambda _guest, _target, _length, fd, *_: (
        WasiErrno.NOTDIR if _is_stream(fd) else WasiErrno.BADF
    ),
    "poll_oneoff": poll_oneoff,
    "proc_exit": lambda guest, code: guest.exit(code),
    "proc_raise": lambda *_: WasiErrno.NOSYS,
    "random_get": _random_get,
    "sched_yield": _sched_yield,
}

WASI_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = host_functions(
    WASI, _CALLS, failure=lambda errno: _WASI_ERRNOS.get(errno, WasiErrno.IO)
)
