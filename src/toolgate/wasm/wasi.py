"""How the calls of WASI fail: with numbers of WASI's own, which are results as they are.

WASI's `poll_oneoff`, by which its guests sleep: clocks are waited for, streams are always ready.

WASI preview 1, as much of it as a guest has here: arguments, variables, clocks, chance, standard streams.

All of its functions are there, so that programs link that never call most of them. There are no files, no
directories and no sockets: descriptors are 0, 1 and 2, closing one changes nothing, and any other is bad.
Streams look like a terminal, so that a C library hands over each line as it ends. What a guest has a call do
at once is bounded; what takes longer is done in pieces, between which the run can end.
"""

import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

from toolgate.wasm.abi import WASI, Errno, Guest, HostcallFault, HostFunction
from toolgate.wasm.signatures import host_functions


class WasiErrno(IntEnum):
    """Those of preview 1 that calls here fail with."""

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


def wasi_errno(errno: Errno) -> int:
    """What a call of WASI gives where one of ours would give this number."""
    return _WASI_ERRNOS.get(errno, WasiErrno.IO)


MAX_SUBSCRIPTIONS: Final = 1_024
MAX_SLEEP_NS: Final = 1_000_000 * 1_000_000_000
"""No run is as long; a longer wait would be no number of the host's."""

CLOCKS_NS: Final[Mapping[int, Callable[[], int]]] = {0: time.time_ns, 1: time.monotonic_ns}
"""WASI's clocks. Those of processors are not there: a thread serves one guest after another."""

_SUBSCRIPTION: Final = struct.Struct("<QBxxxxxxxIxxxxQQHxxxxxx")
"""Its mark, its kind; of a clock: which, until when, how precisely, flags. Of a stream: its descriptor."""
_EVENT: Final = struct.Struct("<QHBxxxxxQHxxxxxx")
"""The mark of its subscription, an error, its kind; of a stream: how many bytes, flags."""
_CLOCK: Final = 0
_STREAM_KINDS: Final = {1: (0,), 2: (1, 2)}
"""The streams that can be read, and those that can be written."""
_IS_ABSOLUTE: Final = 1


class _Subscription(NamedTuple):
    mark: int
    kind: int
    subject: int
    timeout_ns: int
    precision_ns: int
    flags: int

    @property
    def is_clock(self) -> bool:
        return self.kind == _CLOCK and self.subject in CLOCKS_NS

    def wait_ns(self) -> int:
        """How long from now. Nothing is to be waited for but clocks."""
        if not self.is_clock:
            return 0
        from_ns = CLOCKS_NS[self.subject]() if self.flags & _IS_ABSOLUTE else 0
        return min(max(0, self.timeout_ns - from_ns), MAX_SLEEP_NS)

    def event(self) -> bytes:
        errno, size = WasiErrno.SUCCESS, 0
        if self.kind == _CLOCK:
            errno = WasiErrno.SUCCESS if self.is_clock else WasiErrno.INVAL
        elif self.subject in _STREAM_KINDS[self.kind]:
            size = 1  # at least: the end of the input, too, is something to read
        else:
            errno = WasiErrno.BADF
        return _EVENT.pack(self.mark, errno, self.kind, size, 0)


def poll_oneoff(guest: Guest[Any], subscriptions: int, events: int, count: int, out: int) -> int:
    """Wait until something of what was subscribed to has come; say all that has."""
    if not 0 < count <= MAX_SUBSCRIPTIONS:
        return WasiErrno.INVAL
    wanted = [
        _parse_subscription(one)
        for one in _SUBSCRIPTION.iter_unpack(_read_subscriptions(guest, subscriptions, count))
    ]
    guest.read(events, count * _EVENT.size, most=MAX_SUBSCRIPTIONS * _EVENT.size)  # where they will stand
    guest.read_u32(out)
    waits_ns = [one.wait_ns() for one in wanted]
    shortest_ns = min(waits_ns)
    guest.sleep(shortest_ns / 1_000_000_000)
    come = [one.event() for one, wait_ns in zip(wanted, waits_ns, strict=True) if wait_ns <= shortest_ns]
    guest.write(events, b"".join(come))
    guest.write_u32(out, len(come))
    return WasiErrno.SUCCESS


def _read_subscriptions(guest: Guest[Any], subscriptions: int, count: int) -> bytes:
    return guest.read(subscriptions, count * _SUBSCRIPTION.size, most=MAX_SUBSCRIPTIONS * _SUBSCRIPTION.size)


def _parse_subscription(fields: tuple[int, ...]) -> _Subscription:
    subscription = _Subscription(*fields)
    if subscription.kind != _CLOCK and subscription.kind not in _STREAM_KINDS:
        raise HostcallFault(Errno.EINVAL)
    return subscription


AnyGuest = Guest[Any]
Call = Callable[..., int | None]

MAX_IOVECS: Final = 1_024
MAX_TRANSFER_BYTES: Final = 1_048_576
"""Of one read or write; what is more, the guest hands over in another call, as with any stream."""
MAX_RANDOM_PIECE: Final = 65_536

_IOVEC: Final = struct.Struct("<II")
_FDSTAT: Final = struct.Struct("<BxHxxxxQQ")
_FILESTAT: Final = struct.Struct("<QQBxxxxxxxQQQQQ")
_CHARACTER_DEVICE: Final = 2
_RIGHTS: Final = (1 << 1) | (1 << 6) | (1 << 27)
"""To read, write and poll; not to seek, which together make a terminal."""
_STREAMS: Final[Mapping[int, Literal["stdout", "stderr"]]] = {1: "stdout", 2: "stderr"}


def _args_sizes_get(guest: AnyGuest, count_pointer: int, size_pointer: int) -> int:
    return _put_sizes(guest, guest.args, (count_pointer, size_pointer))


def _args_get(guest: AnyGuest, pointers: int, buffer: int) -> int:
    return _put_strings(guest, guest.args, (pointers, buffer))


def _environ_sizes_get(guest: AnyGuest, count_pointer: int, size_pointer: int) -> int:
    return _put_sizes(guest, guest.env, (count_pointer, size_pointer))


def _environ_get(guest: AnyGuest, pointers: int, buffer: int) -> int:
    return _put_strings(guest, guest.env, (pointers, buffer))


def _put_sizes(guest: AnyGuest, strings: tuple[bytes, ...], out: tuple[int, int]) -> int:
    guest.write_u32(out[0], len(strings))
    guest.write_u32(out[1], sum(len(one) + 1 for one in strings))
    return WasiErrno.SUCCESS


def _put_strings(guest: AnyGuest, strings: tuple[bytes, ...], out: tuple[int, int]) -> int:
    """The strings, each with a NUL, one after another; and where each of them begins."""
    at, starts = out[1], []
    for one in strings:
        starts.append(at & 0xFFFF_FFFF)
        at += len(one) + 1
    guest.write(out[1], b"".join(one + b"\0" for one in strings))
    guest.write(out[0], struct.pack(f"<{len(starts)}I", *starts))
    return WasiErrno.SUCCESS


def _clock_res_get(guest: AnyGuest, clock: int, out: int) -> int:
    if clock not in CLOCKS_NS:
        return WasiErrno.INVAL
    guest.write(out, struct.pack("<Q", 1))
    return WasiErrno.SUCCESS


def _clock_time_get(guest: AnyGuest, clock: int, _precision: int, out: int) -> int:
    if clock not in CLOCKS_NS:
        return WasiErrno.INVAL
    guest.write(out, struct.pack("<Q", CLOCKS_NS[clock]()))
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


def _proc_exit(guest: AnyGuest, code: int) -> None:
    guest.exit(code)


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
    for span in spans:  # before any of the input is taken
        guest.read(*span, most=MAX_TRANSFER_BYTES)
    data = guest.read_input(sum(length for _, length in spans))
    at = 0
    for pointer, length in spans:
        guest.write(pointer, data[at : at + length])
        at += length
    guest.write_u32(out, len(data))
    return WasiErrno.SUCCESS


def _iter_spans(guest: AnyGuest, iovecs: int, count: int) -> Iterator[tuple[int, int]]:
    """Pointers and lengths, of `MAX_TRANSFER_BYTES` in all at most."""
    left = MAX_TRANSFER_BYTES
    for pointer, length in _IOVEC.iter_unpack(
        guest.read(iovecs, _array_bytes(count), most=MAX_IOVECS * _IOVEC.size)
    ):
        yield pointer, min(length, left)
        left -= min(length, left)


def _array_bytes(count: int) -> int:
    if not 0 <= count <= MAX_IOVECS:
        raise HostcallFault(Errno.EINVAL)
    return count * _IOVEC.size


def _fd_fdstat_get(guest: AnyGuest, fd: int, out: int) -> int:
    if not _is_stream(fd):
        return WasiErrno.BADF
    guest.write(out, _FDSTAT.pack(_CHARACTER_DEVICE, 0, _RIGHTS, 0))
    return WasiErrno.SUCCESS


def _fd_filestat_get(guest: AnyGuest, fd: int, out: int) -> int:
    if not _is_stream(fd):
        return WasiErrno.BADF
    guest.write(out, _FILESTAT.pack(0, fd, _CHARACTER_DEVICE, 1, 0, 0, 0, 0))
    return WasiErrno.SUCCESS


def _is_stream(fd: int) -> bool:
    return 0 <= fd <= 2


def _constant_call(on_stream: WasiErrno) -> Call:
    """A function of descriptors that says the same of each stream, and that no other is there."""
    return lambda _guest, fd, *_: on_stream if _is_stream(fd) else WasiErrno.BADF


def _path_symlink(_guest: AnyGuest, _target: int, _length: int, fd: int, *_: int) -> int:
    return WasiErrno.NOTDIR if _is_stream(fd) else WasiErrno.BADF


_CALLS: Final[Mapping[str, Call]] = {
    "args_get": _args_get,
    "args_sizes_get": _args_sizes_get,
    "environ_get": _environ_get,
    "environ_sizes_get": _environ_sizes_get,
    "clock_res_get": _clock_res_get,
    "clock_time_get": _clock_time_get,
    "fd_advise": _constant_call(WasiErrno.SPIPE),
    "fd_allocate": _constant_call(WasiErrno.SPIPE),
    "fd_close": _constant_call(WasiErrno.SUCCESS),
    "fd_datasync": _constant_call(WasiErrno.SUCCESS),
    "fd_fdstat_get": _fd_fdstat_get,
    "fd_fdstat_set_flags": _constant_call(WasiErrno.SUCCESS),
    "fd_fdstat_set_rights": _constant_call(WasiErrno.SUCCESS),
    "fd_filestat_get": _fd_filestat_get,
    "fd_filestat_set_size": _constant_call(WasiErrno.INVAL),
    "fd_filestat_set_times": _constant_call(WasiErrno.NOTSUP),
    "fd_pread": _constant_call(WasiErrno.SPIPE),
    "fd_prestat_dir_name": _constant_call(WasiErrno.BADF),
    "fd_prestat_get": _constant_call(WasiErrno.BADF),
    "fd_pwrite": _constant_call(WasiErrno.SPIPE),
    "fd_read": _fd_read,
    "fd_readdir": _constant_call(WasiErrno.NOTDIR),
    "fd_renumber": _constant_call(WasiErrno.NOTSUP),
    "fd_seek": _constant_call(WasiErrno.SPIPE),
    "fd_sync": _constant_call(WasiErrno.SUCCESS),
    "fd_tell": _constant_call(WasiErrno.SPIPE),
    "fd_write": _fd_write,
    "path_create_directory": _constant_call(WasiErrno.NOTDIR),
    "path_filestat_get": _constant_call(WasiErrno.NOTDIR),
    "path_filestat_set_times": _constant_call(WasiErrno.NOTDIR),
    "path_link": _constant_call(WasiErrno.NOTDIR),
    "path_open": _constant_call(WasiErrno.NOTDIR),
    "path_readlink": _constant_call(WasiErrno.NOTDIR),
    "path_remove_directory": _constant_call(WasiErrno.NOTDIR),
    "path_rename": _constant_call(WasiErrno.NOTDIR),
    "path_symlink": _path_symlink,
    "path_unlink_file": _constant_call(WasiErrno.NOTDIR),
    "poll_oneoff": poll_oneoff,
    "proc_exit": _proc_exit,
    "proc_raise": lambda *_: WasiErrno.NOSYS,
    "random_get": _random_get,
    "sched_yield": _sched_yield,
    "sock_accept": _constant_call(WasiErrno.NOTSOCK),
    "sock_recv": _constant_call(WasiErrno.NOTSOCK),
    "sock_send": _constant_call(WasiErrno.NOTSOCK),
    "sock_shutdown": _constant_call(WasiErrno.NOTSOCK),
}

WASI_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = host_functions(WASI, _CALLS, failure=wasi_errno)
