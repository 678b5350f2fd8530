"""The one way tests poll: look again, under a deadline.

A machine that runs tests may be busy, so deadlines are generous.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY_S = 0.02
WITHIN_S = 60.0
TURNS = 100


def eventually(look: Callable[[], T | None], within_s: float = WITHIN_S) -> T:
    """Return what `look` finds, as soon as it is truthy. For tests without an event loop."""
    ends_at = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < ends_at, f"nothing within {within_s} s"
        time.sleep(LOOK_EVERY_S)
    return found


def eventually_equal(look: Callable[[], T], expected: T, within_s: float = WITHIN_S) -> None:
    """Return as soon as `look` finds `expected`; fail with what it found last otherwise."""
    ends_at = time.monotonic() + within_s
    while (found := look()) != expected and time.monotonic() < ends_at:
        time.sleep(LOOK_EVERY_S)

    assert found == expected


async def eventually_async(
    look: Callable[[], Awaitable[T | None] | T | None], within_s: float = WITHIN_S
) -> T:
    """As `eventually`, on the event loop; `look` may be a coroutine function."""
    ends_at = time.monotonic() + within_s
    looks = 0
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < ends_at, f"nothing within {within_s} s"
        # What only this loop has to do is done within a few turns; what others do takes longer.
        await asyncio.sleep(0 if looks < TURNS else LOOK_EVERY_S / 2)
        looks += 1
