"""The descriptors of one guest: numbers from 1000 up that are never used twice, and what they stand for.

One that is closed is gone: a number that stands for nothing any more is as bad as one that never did.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, TypeVar

from toolgate.wasm.faults import Errno, Fault

FIRST_FD: Final = 1_000
LAST_FD: Final = 2**31 - 1
"""Descriptors are 32 bits wide and signed."""

EPOLLIN: Final = 0x1
EPOLLOUT: Final = 0x4
EPOLLERR: Final = 0x8
EPOLLHUP: Final = 0x10


class Entry:
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
        raise Fault(Errno.EINVAL)

    def close(self) -> None:
        """Let go of what it holds. Happens once, and cannot fail."""


E = TypeVar("E", bound=Entry)


class FdTable:
    """All that are open; not more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = FIRST_FD
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, entry: Entry) -> int:
        """The number of `entry` from now on. Fault EMFILE where there are too many."""
        self.check_room()
        fd, self._next = self._next, self._next + 1
        self._entries[fd] = entry
        return fd

    def check_room(self) -> None:
        """Fault EMFILE where `open` would: for before a call has any effect."""
        if len(self._entries) >= self._most or self._next > LAST_FD:
            raise Fault(Errno.EMFILE)

    def get(self, fd: int, kind: type[E]) -> E:
        """What `fd` stands for. Fault EBADF where that is nothing, or of another kind."""
        entry = self._entries.get(fd)
        if not isinstance(entry, kind):
            raise Fault(Errno.EBADF)
        return entry

    def close(self, fd: int, kind: type[Entry] = Entry) -> None:
        """Fault EBADF, as `get`."""
        entry = self.get(fd, kind)
        del self._entries[fd]
        entry.close()

    def close_all(self) -> None:
        """At the end of a run."""
        while self._entries:
            _, entry = self._entries.popitem()
            entry.close()

    def entries(self) -> Mapping[int, Entry]:
        """By their numbers."""
        return self._entries
