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
LOOK_S: Final = 0.05
"""How often who waits at the gate looks whether its run is to end: that does not wait for others' calls."""
AROUND_S: Final = 0.000_010
"""What the bindings take for a call, before it comes here and after."""


class Gate:
    """The one of all guests; each goes through by a `Passage` of its own."""

    def __init__(
        self, *, clock_s: Callable[[], float] = time.monotonic, rest: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock_s = clock_s
        self._rest = rest
        self._lock = threading.Lock()
        self._entered_s = 0.0
        self._earned_at_s = 0.0
        """When the time that was used is their share of the time that has passed."""

    def enter(self, is_ending: Callable[[], bool]) -> bool:
        """Whether it is held now; not where the run is to end, which may go on without it."""
        while not self._lock.acquire(timeout=LOOK_S):
            if is_ending():
                return False
        if self._earned_at_s > self._clock_s() + REST_S:
            self._rest(REST_S)  # all others wait: it is the event loop's turn
        self._entered_s = self._clock_s()
        return True

    def leave(self, around_s: float) -> None:
        used_s = self._clock_s() - self._entered_s + around_s
        self._earned_at_s = max(self._earned_at_s, self._entered_s) + used_s / SHARE
        self._lock.release()


class Passage:
    """Held as a context manager; `left` is one too, for who holds it and is about to wait."""

    def __init__(self, gate: Gate, is_ending: Callable[[], bool]) -> None:
        self._gate = gate
        self._is_ending = is_ending
        self._is_held = False
        self.left = _Left(self)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *exc_info: object) -> None:
        self.leave(AROUND_S)

    def enter(self) -> None:
        self._is_held = self._gate.enter(self._is_ending)

    def leave(self, around_s: float = 0.0) -> None:
        if self._is_held:
            self._is_held = False
            self._gate.leave(around_s)


class _Left:
    def __init__(self, passage: Passage) -> None:
        self._passage = passage

    def __enter__(self) -> None:
        self._passage.leave()

    def __exit__(self, *exc_info: object) -> None:
        self._passage.enter()
