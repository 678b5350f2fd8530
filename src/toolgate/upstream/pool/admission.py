"""The node's cap on calls in flight at all servers together, shared fairly between principals.

A call takes a slot right before it is sent and gives it back with its result, so a call that waits for its
server, an approval or its own client holds none. Below the cap a call pays for a comparison and two counts.

Fair means by principal, not by session or connection: more sessions give no larger share.

- One principal alone gets four fifths of the slots. The last fifth is for principals that hold less than a
  tenth of all: while one floods the node with slow calls, the others do not wait.
- A free slot goes to the waiting principal that holds the fewest; of equals, the one served longest ago.
- When the queue is full, the newest call of the principal with the most waiting calls is refused.
"""

import asyncio
from typing import Final

from toolgate.errors import CallTimedOut, NodeBusy, ToolgateError

SHARE: Final = 10
"""The last fifth of all slots is for principals that hold less than this part of them, as for streams."""

_Turn = asyncio.Future[ToolgateError | None]
"""Ends with None when the slot is there, else with the error that the call fails with."""


class NodeSlots:
    """Who holds how many slots, and who waits.

    Invariant: while calls wait, there is a slot for none of them, so no call overtakes one whose principal
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
        """By principal, the one served last at the end; the calls of each in the order they came."""
        self.in_flight = 0
        self.queued = 0
        self.refused = 0
        """Calls turned away because the queue was full, since the start."""

    def try_take(self, principal_id: str) -> bool:
        """Take a slot if there is one for this principal. Every True needs its `release`."""
        held = self._held.get(principal_id, 0)
        in_flight = self.in_flight
        if in_flight < self._common or (in_flight < self.limit and held < self._share):
            self.in_flight = in_flight + 1
            self._held[principal_id] = held + 1
            return True
        return False

    async def take(self, principal_id: str, until_s: float, *, has_server_slot: bool = False) -> None:
        """Wait for a slot, until loop time `until_s`. Raises NodeBusy at once when the queue is full.

        Calls that hold a slot of their server are not refused: those slots bound their number, and many may
        come at once when servers have started.
        """
        if self.try_take(principal_id):
            return
        if self.queued >= self.limit and not has_server_slot:
            self._make_room(principal_id)
        loop = asyncio.get_running_loop()
        turn: _Turn = loop.create_future()
        self._waiting.setdefault(principal_id, {})[turn] = None
        self.queued += 1
        timer = loop.call_at(until_s, self._expire, principal_id, turn)
        try:
            refusal = await turn
        except asyncio.CancelledError:
            # The slot may have been given in the very moment the caller went away.
            if turn.cancelled():
                self._remove(principal_id, turn)
            elif turn.result() is None:
                self.release(principal_id)
            raise
        finally:
            timer.cancel()
        if refusal is not None:
            raise refusal

    def release(self, principal_id: str) -> None:
        """Give a slot back, to the next call that waits if there is one."""
        self.in_flight -= 1
        held = self._held[principal_id] - 1
        if held:
            self._held[principal_id] = held
        else:
            del self._held[principal_id]
        if self._waiting:
            self._serve_waiting()

    def retake(self, principal_id: str) -> None:
        """Have the slot back of a call that released it for a while, at once.

        There may be one call too many for a moment: a call that its server works on cannot be stopped.
        """
        self.in_flight += 1
        self._held[principal_id] = self._held.get(principal_id, 0) + 1

    def _serve_waiting(self) -> None:
        held, waiting = self._held, self._waiting
        while waiting:
            principal_id = min(waiting, key=lambda one: held.get(one, 0))
            turn = next(iter(waiting[principal_id]))
            if turn.done():  # its caller is about to go away
                self._remove(principal_id, turn)
                continue
            if not self.try_take(principal_id):
                return  # the others hold as many, or more
            self._remove(principal_id, turn)
            if principal_id in waiting:
                waiting[principal_id] = waiting.pop(principal_id)
            turn.set_result(None)

    def _make_room(self, principal_id: str) -> None:
        """Refuse the newest call of the principal with the most waiting. Raises NodeBusy if that is this."""
        waiting = self._waiting
        largest = max(waiting, key=lambda one: len(waiting[one]))
        self.refused += 1
        if len(waiting[largest]) <= len(waiting.get(principal_id, ())) + 1:
            raise self._busy()
        newest = next(reversed(waiting[largest]))
        self._remove(largest, newest)
        if not newest.done():
            newest.set_result(self._busy())

    def _expire(self, principal_id: str, turn: _Turn) -> None:
        if not turn.done():
            self._remove(principal_id, turn)
            turn.set_result(
                CallTimedOut(
                    f"this node has {self.in_flight} calls in flight, and no slot within the call's time;"
                    " nothing was sent",
                    hint=NodeBusy.default_hint,
                )
            )

    def _remove(self, principal_id: str, turn: _Turn) -> None:
        turns = self._waiting.get(principal_id)
        if turns is None or turn not in turns:
            return  # passed over already
        del turns[turn]
        self.queued -= 1
        if not turns:
            del self._waiting[principal_id]

    def _busy(self) -> NodeBusy:
        return NodeBusy(f"this node has {self.in_flight} calls in flight and {self.queued} waiting")
