"""The slots for the child processes of a pool: how many there may be, and which idle connection gives its
slot up.

Invariant: a slot is taken before a child starts and given back after it has ended, so the warden never has to
reject one. A connection in use never loses its child: if all are in use, starts wait in line.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol


class ChildHolder(Protocol):
    """A connection that may have a child."""

    last_used_s: float

    @property
    def is_evictable(self) -> bool:
        """Whether it has a child that no call, list, session or subscription needs now."""

    def evict(self) -> None:
        """Close the connection until the next call. Reports with `begin_closing` and `give_back`."""


def _ignore_eviction() -> None:
    """The default: no one counts evictions."""


class ChildSlots:
    """The slots of one pool. Starts that a call waits for come before those that only list a server."""

    def __init__(
        self,
        capacity: Callable[[], int] = lambda: sys.maxsize,
        *,
        on_evict: Callable[[], None] = _ignore_eviction,
    ) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._taken = 0
        self._closing = 0
        """Taken slots whose children are being ended."""
        self._holders: set[ChildHolder] = set()
        """Connections whose child runs."""
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._patient: deque[asyncio.Future[None]] = deque()
        self._turns: dict[ChildHolder, asyncio.Future[None]] = {}

    @property
    def capacity(self) -> int:
        return self._capacity()

    def is_awaited_by(self, holder: ChildHolder) -> bool:
        """Whether a start of `holder` waits for a slot."""
        return holder in self._turns

    async def take(self, holder: ChildHolder | None, *, is_urgent: bool) -> None:
        """Wait for a slot. The connection that is idle longest gives up its own.

        Every return needs a `give_back`.
        """
        if not (self._urgent or self._patient) and self._taken < self._capacity():
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        (self._urgent if is_urgent else self._patient).append(turn)
        if holder is not None:
            self._turns[holder] = turn
        self.evict()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give_back()  # it was granted at this very moment
            for queue in (self._urgent, self._patient):
                with suppress(ValueError):
                    queue.remove(turn)
            raise
        finally:
            if holder is not None:
                self._turns.pop(holder, None)

    def mark_urgent(self, holder: ChildHolder) -> None:
        """A call waits for `holder`, which so far only had to be listed."""
        turn = self._turns.get(holder)
        if turn is not None and turn in self._patient:
            self._patient.remove(turn)
            self._urgent.append(turn)

    def hold(self, holder: ChildHolder) -> None:
        """The child of `holder` runs."""
        self._holders.add(holder)

    def begin_closing(self, holder: ChildHolder) -> None:
        """The child of `holder` is being ended; `give_back` follows."""
        self._holders.discard(holder)
        self._closing += 1

    def give_back(self, *, has_closed: bool = False) -> None:
        """Free a slot: no child was started in it, or its child has ended (`has_closed`)."""
        self._taken -= 1
        self._closing -= has_closed
        while (self._urgent or self._patient) and self._taken < self._capacity():
            turn = (self._urgent or self._patient).popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[None]:
        """A slot for a child without a connection in the pool."""
        await self.take(None, is_urgent=True)
        try:
            yield
        finally:
            self.give_back()

    def evict(self) -> None:
        """Free as many slots as starts wait for, if connections are idle."""
        if not (self._urgent or self._patient):
            return  # almost always: every call ends here
        wanted = len(self._urgent) + len(self._patient) - self._closing
        while wanted > 0:
            idle = [holder for holder in self._holders if holder.is_evictable]
            if not idle:
                return
            min(idle, key=lambda holder: holder.last_used_s).evict()
            self._on_evict()
            wanted -= 1
