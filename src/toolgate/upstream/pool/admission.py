"""Admission of calls: the gate of each server, and the node's slots for all servers and for child processes.

A call that finds room pays for a comparison and a count only. While a request to its client is open, a call
yields its place at the server and its slot of the node.

The node's slots are shared fairly between principals, not sessions or connections:

- One principal alone gets four fifths of the slots. The last fifth is for principals with less than a
  tenth of all: while one floods the node with slow calls, the others do not wait.
- A free slot goes to the waiting principal with the fewest; of equals, the one that got one longest ago.
- When the queue is full, the newest call of the principal with the most waiting calls is rejected.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toolgate.errors import CallTimedOut, NodeBusy, ServerBusy
from toolgate.upstream.connection.contract import ClientChannel, RpcResponse

if TYPE_CHECKING:  # it uses this module
    from toolgate.upstream.pool.managed_connection import ManagedConnection

SHARE: Final = 10
"""The last fifth of all slots is for principals with less than this part of them."""

_Turn = asyncio.Future[None]
"""Done once the place or slot is granted; it fails with the error of a call that made room for others."""


class NodeSlots:
    """The slots of the node, and the calls that wait for one. A call takes its slot right before it is sent.

    Invariant: while calls wait, no slot is free for any of them, so no call overtakes one whose principal
    holds as few.
    """

    __slots__ = ("_common", "_held", "_share", "_waiting", "in_flight", "limit", "queued", "refused")

    def __init__(self, limit: int) -> None:
        """`limit`: calls in flight at once. As many again may wait."""
        self.limit = limit
        self._common = -(-limit * 4 // 5)
        self._share = -(-limit // SHARE)
        self._held: dict[str, int] = {}
        self._waiting: dict[str, dict[_Turn, None]] = {}
        """By principal, the one served last at the end; the calls of each in order of arrival."""
        self.in_flight = 0
        self.queued = 0
        self.refused = 0
        """Calls rejected because the queue was full, since the start."""

    def try_take(self, principal_id: str) -> bool:
        """Take a slot if this principal may have one now. Every True needs its `release`."""
        held = self._held.get(principal_id, 0)
        in_flight = self.in_flight
        if in_flight < self._common or (in_flight < self.limit and held < self._share):
            self.in_flight = in_flight + 1
            self._held[principal_id] = held + 1
            return True
        return False

    async def take(self, principal_id: str, until_s: float, *, has_server_slot: bool = False) -> None:
        """Wait for a slot, until loop time `until_s`. Raises NodeBusy at once when the queue is full.

        Calls that hold a place at their server are not rejected: those places bound their number, and many
        may come at once when servers have started.
        """
        if self.try_take(principal_id):
            return
        if self.queued >= self.limit and not has_server_slot:
            self._make_room(principal_id)
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal_id, {})[turn] = None
        self.queued += 1
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as exc:
            # The slot may have been granted or refused at this very moment.
            if turn.cancelled():
                self._remove(principal_id, turn)
            elif turn.exception() is None:
                self.release(principal_id)
            if isinstance(exc, asyncio.CancelledError):
                raise
            in_flight = f"this node has {self.in_flight} calls in flight"
            raise CallTimedOut(
                f"{in_flight}, and no slot within the call's time; nothing was sent",
                hint=NodeBusy.default_hint,
            ) from exc

    def release(self, principal_id: str) -> None:
        self.in_flight -= 1
        held = self._held[principal_id] - 1
        if held:
            self._held[principal_id] = held
        else:
            del self._held[principal_id]
        if self._waiting:
            self._serve_waiting()

    def retake(self, principal_id: str) -> None:
        """Take the slot of a call back that released it for a while, at once.

        There may be one call too many for a moment: a call that its server works on cannot be stopped.
        """
        self.in_flight += 1
        self._held[principal_id] = self._held.get(principal_id, 0) + 1

    def _serve_waiting(self) -> None:
        held, waiting = self._held, self._waiting
        while waiting:
            principal_id = min(waiting, key=lambda one: held.get(one, 0))
            turn = next(iter(waiting[principal_id]))
            if turn.done():  # its caller is about to leave
                self._remove(principal_id, turn)
                continue
            if not self.try_take(principal_id):
                return  # the others hold as many, or more
            self._remove(principal_id, turn)
            if principal_id in waiting:
                waiting[principal_id] = waiting.pop(principal_id)
            turn.set_result(None)

    def _make_room(self, principal_id: str) -> None:
        """Reject the newest call of the principal with most waiting. Raises NodeBusy if it is this one."""
        waiting = self._waiting
        largest = max(waiting, key=lambda one: len(waiting[one]))
        self.refused += 1
        busy = NodeBusy(f"this node has {self.in_flight} calls in flight and {self.queued} waiting")
        if len(waiting[largest]) <= len(waiting.get(principal_id, ())) + 1:
            raise busy
        newest = next(reversed(waiting[largest]))
        self._remove(largest, newest)
        if not newest.done():
            newest.set_exception(busy)

    def _remove(self, principal_id: str, turn: _Turn) -> None:
        turns = self._waiting.get(principal_id)
        if turns is None or turn not in turns:
            return  # removed already
        del turns[turn]
        self.queued -= 1
        if not turns:
            del self._waiting[principal_id]


@dataclass(slots=True, eq=False)
class ServerGate:
    """The places of one server, and a queue that exists only while it is full.

    Invariant: while calls wait, no place is free, so none overtakes another.
    """

    server_id: str
    limit: int
    queue: int
    in_flight: int = 0
    """Calls that hold a place."""
    outside: int = 0
    """Calls that gave their place away and will take it back."""
    _waiting: deque[_Turn] = field(default_factory=deque)
    _emptied: asyncio.Event | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no call is in flight, nor will return."""
        return not self.in_flight and not self.outside

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self._waiting

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def try_enter(self) -> bool:
        """Take a place if there is one. Every True needs its `leave`."""
        if self.in_flight < self.limit:
            self.in_flight += 1
            return True
        return False

    async def enter(self, until_s: float) -> None:
        """Wait for a place, until loop time `until_s`. Raises ServerBusy at once when the queue is full."""
        if self.try_enter():
            return
        if len(self._waiting) >= self.queue:
            raise ServerBusy(
                f"server `{self.server_id}` has {self.in_flight} calls in flight and {self.queued} waiting"
            )
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as exc:
            # The place may have been granted at this very moment: it goes to the next call.
            if not turn.cancelled():
                self.leave()
            else:
                with suppress(ValueError):  # removed already
                    self._waiting.remove(turn)
            if isinstance(exc, asyncio.CancelledError):
                raise
            message = f"no room at server `{self.server_id}` within the call's time; nothing was sent"
            raise CallTimedOut(message) from exc

    def leave(self) -> None:
        """Give the place to the call that waits longest, or back."""
        if self._waiting and self.in_flight <= self.limit and self._admit_next():
            return
        self.in_flight -= 1
        if self._emptied is not None and self.is_empty:
            self._emptied.set()

    def release_for_client(self) -> None:
        """Yield the place while a request to the client is open. Each needs its `retake_after_client`."""
        self.outside += 1
        self.leave()

    def retake_after_client(self) -> None:
        """Take the place back at once: there may be one call too many for a moment."""
        self.outside -= 1
        self.in_flight += 1

    def resize(self, limit: int) -> None:
        """Change the number of places. Calls in flight stay; waiting ones enter if it grew."""
        self.limit = limit
        while self.in_flight < limit and self._admit_next():
            self.in_flight += 1

    async def wait_empty(self) -> None:
        """Return once no call is in flight, nor will return."""
        if not self.is_empty:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _admit_next(self) -> bool:
        """Give a place to the call that waits longest. A cancelled one may still be in the queue."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class YieldingClient:
    """The client behind a call. While a request to it is open, the call yields its place and its slot.

    The call ends it before it leaves the gate: the client's response may come later than the call's end.
    """

    __slots__ = (
        *("_client", "_gate", "_is_over", "_open_requests", "_payer", "_slots"),
        *("capabilities", "has_session", "log_level", "notify", "principal_id"),
    )

    def __init__(self, client: ClientChannel, gate: ServerGate, slots: NodeSlots, payer: str) -> None:
        """`payer`: the principal that holds the call's slot of the node."""
        self._client = client
        self._gate = gate
        self._slots = slots
        self._payer = payer
        self._open_requests = 0
        self._is_over = False
        self.principal_id = client.principal_id
        self.capabilities = client.capabilities
        self.log_level = client.log_level
        self.has_session = client.has_session
        self.notify = client.notify

    async def request(self, method: str, params: bytes) -> RpcResponse:
        if not self._open_requests and not self._is_over:
            self._gate.release_for_client()
            self._slots.release(self._payer)
        self._open_requests += 1
        try:
            return await self._client.request(method, params)
        finally:
            self._open_requests -= 1
            if not self._open_requests and not self._is_over:
                self._retake()

    def end(self) -> None:
        """The call is over, even if requests to the client are still open."""
        self._is_over = True
        if self._open_requests:
            self._retake()

    def _retake(self) -> None:
        self._gate.retake_after_client()
        self._slots.retake(self._payer)


@dataclass(eq=False)
class ChildSlots:
    """The slots for the child processes of a pool. Starts that calls wait for come before those that list.

    Invariant: a slot is taken before a child starts and given back after it has ended, so the warden never
    has to reject one. A connection in use never loses its child: if all are in use, starts wait in line.
    """

    capacity: Callable[[], int] = lambda: sys.maxsize
    on_evict: Callable[[], None] = lambda: None
    _taken: int = field(default=0, init=False)
    _closing: int = field(default=0, init=False)
    """Taken slots whose children are being ended."""
    _holders: "set[ManagedConnection]" = field(default_factory=set, init=False)
    """Connections whose child runs."""
    _urgent: deque[_Turn] = field(default_factory=deque, init=False)
    _patient: deque[_Turn] = field(default_factory=deque, init=False)
    _turns: "dict[ManagedConnection, _Turn]" = field(default_factory=dict, init=False)

    def is_awaited_by(self, holder: "ManagedConnection") -> bool:
        return holder in self._turns

    async def take(self, holder: "ManagedConnection | None", *, is_urgent: bool) -> None:
        """Wait for a slot. The longest idle connection gives up its own. Every return needs a `give_back`."""
        if not (self._urgent or self._patient) and self._taken < self.capacity():
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

    def mark_urgent(self, holder: "ManagedConnection") -> None:
        """A call waits for `holder`, which so far only had to be listed."""
        turn = self._turns.get(holder)
        if turn is not None and turn in self._patient:
            self._patient.remove(turn)
            self._urgent.append(turn)

    def hold(self, holder: "ManagedConnection") -> None:
        self._holders.add(holder)

    def begin_closing(self, holder: "ManagedConnection") -> None:
        """The child of `holder` is being ended; `give_back` follows."""
        self._holders.discard(holder)
        self._closing += 1

    def give_back(self, *, has_closed: bool = False) -> None:
        """Free a slot: no child was started in it, or its child has ended (`has_closed`)."""
        self._taken -= 1
        self._closing -= has_closed
        while (self._urgent or self._patient) and self._taken < self.capacity():
            turn = (self._urgent or self._patient).popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

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
            self.on_evict()
            wanted -= 1
