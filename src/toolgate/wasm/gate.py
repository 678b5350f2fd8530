"""The gate that calls of all guests come through one at a time, and that rests where they come without end.

Calls are Python, and share the interpreter with the event loop. Guests that call and call, each for itself,
would leave it the share of one among many: with 32 of them it was a second late. Together they get a share.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

SHARE: Final = 0.5
"""Of the time, for all guests together."""
REST_S: Final = 0.005
"""How far they may be ahead of it, and how long the gate is closed then."""
AROUND_S: Final = 0.000_010
"""What the bindings take for a call, before it comes here and after."""


class Gate:
    """Held as a context manager; `left` is one too, for who holds it and is about to wait."""

    def __init__(
        self, *, clock_s: Callable[[], float] = time.monotonic, rest: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock_s = clock_s
        self._rest = rest
        self._lock = threading.Lock()
        self._entered_s = 0.0
        self._earned_at_s = 0.0
        """When the time that was used is their share of the time that has passed."""
        self.left = _Left(self)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *exc_info: object) -> None:
        self.leave(AROUND_S)

    def enter(self) -> None:
        self._lock.acquire()
        if self._earned_at_s > self._clock_s() + REST_S:
            self._rest(REST_S)  # all others wait: it is the event loop's turn
        self._entered_s = self._clock_s()

    def leave(self, around_s: float = 0.0) -> None:
        used_s = self._clock_s() - self._entered_s + around_s
        self._earned_at_s = max(self._earned_at_s, self._entered_s) + used_s / SHARE
        self._lock.release()


class _Left:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.leave()

    def __exit__(self, *exc_info: object) -> None:
        self._gate.enter()
