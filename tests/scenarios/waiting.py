"""Waits on a world of other processes: by looking again, under a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY_S = 0.02


def eventually(look: Callable[[], T | None], within_s: float = 30.0) -> T:
    """What `look` finds, as soon as that is something."""
    ends_at = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < ends_at, f"nothing within {within_s} s"
        time.sleep(LOOK_EVERY_S)
    return found


def settle_on(look: Callable[[], T], expected: T, within_s: float = 30.0) -> None:
    """Passes as soon as `look` finds `expected`; fails with the last it found otherwise."""
    ends_at = time.monotonic() + within_s
    while (found := look()) != expected and time.monotonic() < ends_at:
        time.sleep(LOOK_EVERY_S)

    assert found == expected
