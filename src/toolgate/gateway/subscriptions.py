"""Who wants to hear that its list changed. Nobody else is told.

A subscriber is a caller and an event. When the snapshot is swapped, each caller's view is compiled
once, however many subscribers share it, and only those whose list really differs are woken. That may be
thousands of compilations, so the loop gets its turn in between.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from toolgate.errors import SessionLimit, ToolgateError
from toolgate.gateway.caller import Caller
from toolgate.gateway.view import View

MAX_OPEN: Final = 5_000
"""Listeners of a node: one more is refused, those there are go on."""
SHARE: Final = 10
"""The last fifth of them is for principals that hold less than this part of all: none takes everything."""
TURN_S: Final = 0.01
"""How long views are compiled before others have their turn."""
_NOTHING: Final = b""


class Subscription:
    """One listener. It is woken when its list changed, and when it has to end."""

    __slots__ = ("_has_changed", "_woken", "caller", "is_over", "signature")

    def __init__(self, caller: Caller, signature: bytes) -> None:
        self.caller = caller
        self.signature = signature
        """Of the list last taken note of."""
        self.is_over = False
        """The listener must end; there is nothing more to wait for."""
        self._has_changed = False
        self._woken = asyncio.Event()

    def change(self, signature: bytes) -> None:
        """The list is now another."""
        self.signature = signature
        self._has_changed = True
        self._woken.set()

    def end(self) -> None:
        """Have the listener end."""
        self.is_over = True
        self._woken.set()

    async def wait_changed(self, timeout_s: float) -> bool:
        """Whether the list changed since the last time; waits for that, or the end, up to `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        if not self.is_over:
            self._woken.clear()
        has_changed, self._has_changed = self._has_changed, False
        return has_changed


class Subscriptions:
    """All listeners of a node."""

    def __init__(self, view: Callable[[Caller], View]) -> None:
        self._view = view
        self._open: set[Subscription] = set()
        self._held: Counter[str] = Counter()
        self._is_closed = False
        self._is_due = False
        self._announcing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, caller: Caller) -> Iterator[Subscription]:
        """Listen for as long as the block runs."""
        principal_id = caller.principal.id
        self._check_room(principal_id)
        subscription = Subscription(caller, self._signature(caller))
        subscription.is_over = self._is_closed
        self._open.add(subscription)
        self._held[principal_id] += 1
        try:
            yield subscription
        finally:
            self._open.discard(subscription)
            self._held[principal_id] -= 1
            if not self._held[principal_id]:
                del self._held[principal_id]

    def close(self) -> None:
        """End all, and whoever still comes."""
        self._is_closed = True
        for subscription in self._open:
            subscription.end()

    def announce(self) -> None:
        """The snapshot was swapped: wake those whose list changed, soon."""
        self._is_due = bool(self._open)
        if self._is_due and (self._announcing is None or self._announcing.done()):
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

    def _check_room(self, principal_id: str) -> None:
        if len(self._open) >= MAX_OPEN:
            raise SessionLimit(f"this node holds {MAX_OPEN} event streams")
        is_nearly_full = len(self._open) * 5 >= MAX_OPEN * 4
        if is_nearly_full and self._held[principal_id] * SHARE >= MAX_OPEN:
            raise SessionLimit(
                f"you hold {self._held[principal_id]} event streams, and what is left is for others",
                hint="close streams you do not need",
            )

    async def _announce(self) -> None:
        while self._is_due:
            self._is_due = False  # set again by a swap meanwhile, which may concern those already passed
            await self._look_at_all()

    async def _look_at_all(self) -> None:
        clock = asyncio.get_running_loop().time
        seen: dict[Caller, bytes] = {}
        until_s = clock() + TURN_S
        for subscription in tuple(self._open):
            if clock() > until_s:
                await asyncio.sleep(0)
                until_s = clock() + TURN_S
            caller = subscription.caller
            if caller not in seen:
                seen[caller] = self._signature(caller)
            if seen[caller] != subscription.signature:
                subscription.change(seen[caller])

    def _signature(self, caller: Caller) -> bytes:
        """A caller whose scope is now refused sees nothing."""
        try:
            return self._view(caller).signature
        except ToolgateError:
            return _NOTHING
