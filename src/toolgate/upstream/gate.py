"""Admission to one server: so many calls at once, so many waiting in order, the rest refused at once.

A counter, and a queue that only exists while the server is full: a call that finds room must never
pay for more than the counter. A call whose client is asked something lets others have its place meanwhile.
"""

import asyncio
from collections import deque
from contextlib import suppress

from toolgate.errors import CallTimedOut, ServerBusy
from toolgate.upstream.connection.contract import ClientSide, Reply
from toolgate.upstream.pool.admission import NodeSlots


class Gate:
    """Invariant: while anybody waits, no room is free, so nobody overtakes."""

    __slots__ = ("_emptied", "_limit", "_queue", "_server_id", "_waiting", "in_flight", "outside")

    def __init__(self, server_id: str, *, limit: int, queue: int) -> None:
        self._server_id = server_id
        self._limit = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._emptied: asyncio.Event | None = None
        self.in_flight = 0
        """Calls that hold a place."""
        self.outside = 0
        """Calls that gave their place away and will be back."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is inside, nor will be back."""
        return not self.in_flight and not self.outside

    @property
    def is_idle(self) -> bool:
        """Whether it is empty, and no call waits to come in."""
        return self.is_empty and not self._waiting

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def try_enter(self) -> bool:
        """Take a place if there is one. Every True needs its `leave`."""
        if self.in_flight < self._limit:
            self.in_flight += 1
            return True
        return False

    async def enter(self, until_s: float) -> None:
        """Wait for a place, until loop time `until_s`. Raises ServerBusy at once when the queue is full."""
        if self.try_enter():
            return
        if len(self._waiting) >= self._queue:
            raise ServerBusy(
                f"server `{self._server_id}` has {self.in_flight} calls in flight and {self.queued} waiting"
            )
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(turn)
        timer = loop.call_at(until_s, self._expire, turn)
        try:
            has_place = await turn
        except asyncio.CancelledError:
            self._abandon(turn)
            raise
        finally:
            timer.cancel()
        if not has_place:
            raise CallTimedOut(
                f"no room at server `{self._server_id}` within the call's time; nothing was sent"
            )

    def leave(self) -> None:
        """Give the place to whoever waits longest, or back."""
        if self._waiting and self.in_flight <= self._limit and self._let_next_in():
            return
        self.in_flight -= 1
        if self._emptied is not None and self.is_empty:
            self._emptied.set()

    def step_out(self) -> None:
        """Let somebody else have the place for a while. Every one needs its `step_in`."""
        self.outside += 1
        self.leave()

    def step_in(self) -> None:
        """Be back, at once: there may be one too many for a moment, but nobody who is inside waits."""
        self.outside -= 1
        self.in_flight += 1

    def resize(self, limit: int) -> None:
        """Change the room. Those inside stay; those waiting come in if it grew."""
        self._limit = limit
        while self.in_flight < limit and self._let_next_in():
            self.in_flight += 1

    async def emptied(self) -> None:
        """Returns once nobody is inside, nor will be back."""
        if not self.is_empty:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def _let_next_in(self) -> bool:
        """Give a place to whoever waits longest. One who is about to go away may still stand in line."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)
                return True
        return False

    def _expire(self, turn: asyncio.Future[bool]) -> None:
        if not turn.done():
            self._waiting.remove(turn)
            turn.set_result(False)

    def _abandon(self, turn: asyncio.Future[bool]) -> None:
        # The place may have been given in the very moment the caller went away: it goes to the next.
        if turn.cancelled():
            with suppress(ValueError):  # passed over already
                self._waiting.remove(turn)
        elif turn.result():
            self.leave()


class AskedOutside:
    """The client behind a call. While it is asked something, the call's slots are free, at server and node.

    The call that made it ends it before it leaves the gate: an answer may come later than the call's end.
    """

    __slots__ = (
        *("_asked", "_client", "_gate", "_is_over", "_payer", "_slots"),
        *("capabilities", "has_session", "log_level", "notify", "principal_id"),
    )

    def __init__(self, client: ClientSide, gate: Gate, slots: NodeSlots, payer: str) -> None:
        """`payer`: the principal that holds the call's slot on the node."""
        self._client = client
        self._gate = gate
        self._slots = slots
        self._payer = payer
        self._asked = 0
        self._is_over = False
        self.principal_id = client.principal_id
        self.capabilities = client.capabilities
        self.log_level = client.log_level
        self.has_session = client.has_session
        self.notify = client.notify

    async def ask(self, method: str, params: bytes) -> Reply:
        """See `ClientSide.ask`."""
        if not self._asked and not self._is_over:
            self._gate.step_out()
            self._slots.release(self._payer)
        self._asked += 1
        try:
            return await self._client.ask(method, params)
        finally:
            self._asked -= 1
            if not self._asked and not self._is_over:
                self._step_in()

    def end(self) -> None:
        """The call is over, whoever is still asked."""
        self._is_over = True
        if self._asked:
            self._step_in()

    def _step_in(self) -> None:
        self._gate.step_in()
        self._slots.retake(self._payer)
