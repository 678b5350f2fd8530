"""WASI's `poll_oneoff`, by which its guests sleep: clocks are waited for, streams are always ready."""

import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from toolgate.wasm.abi import Guest
from toolgate.wasm.faults import Errno, Fault
from toolgate.wasm.wasi_errno import WasiErrno

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
    wanted = [_parse(one) for one in _SUBSCRIPTION.iter_unpack(_read_all(guest, subscriptions, count))]
    guest.read(events, count * _EVENT.size, most=MAX_SUBSCRIPTIONS * _EVENT.size)  # where they will stand
    guest.read_u32(out)
    waits_ns = [one.wait_ns() for one in wanted]
    shortest_ns = min(waits_ns)
    guest.sleep(shortest_ns / 1_000_000_000)
    come = [one.event() for one, wait_ns in zip(wanted, waits_ns, strict=True) if wait_ns <= shortest_ns]
    guest.write(events, b"".join(come))
    guest.write_u32(out, len(come))
    return WasiErrno.SUCCESS


def _read_all(guest: Guest[Any], subscriptions: int, count: int) -> bytes:
    return guest.read(subscriptions, count * _SUBSCRIPTION.size, most=MAX_SUBSCRIPTIONS * _SUBSCRIPTION.size)


def _parse(fields: tuple[int, ...]) -> _Subscription:
    subscription = _Subscription(*fields)
    if subscription.kind != _CLOCK and subscription.kind not in _STREAM_KINDS:
        raise Fault(Errno.EINVAL)
    return subscription
