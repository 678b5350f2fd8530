"""How many child processes the connections of a pool may have together, and which one gives its place up.

Invariant: a place is taken before a child is started and given back after it has ended, so that the warden
never has to refuse one. A connection that is in use never loses its child: if all are, starts wait in line.
"""

import asyncio
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
        """Close the connection until the next call. Reports back with `begin_closing` and `give_back`."""


class ChildSlots:
    """The places of one pool. Starts that a call waits for come before those that only list a server."""

    def __init__(self, capacity: Callable[[], int], *, on_evict: Callable[[], None]) -> None:
        self._capacity = capacity
        self._on_evict = on_evict
        self._taken = 0
        self._closing = 0
        """Of those taken: children that are being ended."""
        self._holders: set[ChildHolder] = set()
        """Connections whose child runs."""
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._patient: deque[asyncio.Future[None]] = deque()
        self._turns: dict[ChildHolder, asyncio.Future[None]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether a start waits for a place."""
        return bool(self._urgent or self._patient)

    @property
    def capacity(self) -> int:
        return self._capacity()

    async def take(self, holder: ChildHolder | None, *, is_urgent: bool) -> None:
        """Wait for a place; if there is none, the idle connection that was used longest ago gives up its own.

        Every return needs a `give_back`.
        """
        if not self.is_wanted and self._taken < self._capacity():
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
                self.give_back()  # it was granted in the very moment
            for queue in (self._urgent, self._patient):
                with suppress(ValueError):
                    queue.remove(turn)
            raise
        finally:
            if holder is not None:
                self._turns.pop(holder, None)

    def hurry(self, holder: ChildHolder) -> None:
        """A call waits now for what was only to be listed."""
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
        """A place is free: nothing was started in it, or its child has ended (`has_closed`)."""
        self._taken -= 1
        self._closing -= has_closed
        while self.is_wanted and self._taken < self._capacity():
            turn = (self._urgent or self._patient).popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[None]:
        """A place for a child that no connection has."""
        await self.take(None, is_urgent=True)
        try:
            yield
        finally:
            self.give_back()

    def evict(self) -> None:
        """Free as many places as starts wait for, as far as connections are idle."""
        if not (self._urgent or self._patient):
            return  # nearly always: every call ends here
        wanted = len(self._urgent) + len(self._patient) - self._closing
        while wanted > 0:
            idle = [holder for holder in self._holders if holder.is_evictable]
            if not idle:
                return
            min(idle, key=lambda holder: holder.last_used_s).evict()
            self._on_evict()
            wanted -= 1


class ChildSlot:
    """The place of one connection's child. Where connections have none, nothing is counted."""

    __slots__ = ("_holder", "_is_closing", "_places", "is_awaited", "waiting_calls")

    def __init__(self, places: ChildSlots | None, holder: ChildHolder) -> None:
        self._places = places
        self._holder = holder
        self._is_closing = False
        self.is_awaited = False
        """A start waits for it."""
        self.waiting_calls = 0
        """Calls that wait for the start."""

    @property
    def capacity(self) -> int:
        """How many there are."""
        return 0 if self._places is None else self._places.capacity

    @property
    def hint(self) -> str:
        """What a start waits for, if it waits for a place."""
        return f"all {self.capacity} child processes are in use (`max_children`)" if self.is_awaited else ""

    async def take(self, *, is_urgent: bool) -> None:
        """Wait for a place. Every return needs `hold` and `on_closed`, or `on_unused`."""
        if self._places is None:
            return
        self.is_awaited = True
        try:
            await self._places.take(self._holder, is_urgent=is_urgent)
        finally:
            self.is_awaited = False
        self._is_closing = False

    def hurry(self) -> None:
        """A call waits for it."""
        if self._places is not None:
            self._places.hurry(self._holder)

    def hold(self) -> None:
        """The child runs."""
        if self._places is not None:
            self._places.hold(self._holder)

    def begin_closing(self) -> None:
        """The child is being ended."""
        if self._places is not None:
            self._is_closing = True
            self._places.begin_closing(self._holder)

    def on_closed(self) -> None:
        """The child has ended."""
        if self._places is not None:
            self._places.give_back(has_closed=True)

    def on_unused(self) -> None:
        """No child was started; one that was, and is being ended by now, gives its place back itself."""
        if self._places is not None and not self._is_closing:
            self._places.give_back()

    def settle(self) -> None:
        """The connection may be idle by now: a start that waits may have its place."""
        if self._places is not None:
            self._places.evict()
