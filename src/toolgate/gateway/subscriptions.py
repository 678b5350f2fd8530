"""Who wants to hear that its list changed. Nobody else is told.

A subscriber is a caller and an event. When the snapshot is swapped, each caller's view is compiled
once, however many subscribers share it, and only those whose list really differs are woken. That may be
thousands of compilations, so the loop gets its turn in between.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from toolgate.errors import SessionLimit, ToolgateError
from toolgate.gateway.caller import Caller
from toolgate.gateway.view import View

MAX_OPEN: Final = 5_000
"""Listeners of a node: one more is refused, those there are go on."""
TURN_S: Final = 0.01
"""How long views are compiled before others have their turn."""
_NOTHING: Final = b""


class Subscription:
    """One listener. `changed` is set when the list differs from the one last taken note of."""

    __slots__ = ("caller", "changed", "signature")

    def __init__(self, caller: Caller, signature: bytes) -> None:
        self.caller = caller
        self.signature = signature
        self.changed = asyncio.Event()


class Subscriptions:
    """All listeners of a node."""

    def __init__(self, view: Callable[[Caller], View]) -> None:
        self._view = view
        self._open: set[Subscription] = set()
        self._is_due = False
        self._announcing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, caller: Caller) -> Iterator[Subscription]:
        """Listen for as long as the block runs."""
        if len(self._open) >= MAX_OPEN:
            raise SessionLimit(f"this node holds {MAX_OPEN} event streams")
        subscription = Subscription(caller, self._signature(caller))
        self._open.add(subscription)
        try:
            yield subscription
        finally:
            self._open.discard(subscription)

    def announce(self) -> None:
        """The snapshot was swapped: wake those whose list changed, soon."""
        self._is_due = bool(self._open)
        if self._is_due and (self._announcing is None or self._announcing.done()):
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

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
                subscription.signature = seen[caller]
                subscription.changed.set()

    def _signature(self, caller: Caller) -> bytes:
        """A caller whose scope is now refused sees nothing."""
        try:
            return self._view(caller).signature
        except ToolgateError:
            return _NOTHING
