"""An event loop whose clock jumps to the next timer instead of waiting for it.

Hours of backoff pass in milliseconds, and every time a test observes is exact. For code without real I/O.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_STUCK_S: Final = 5.0

pass_time = asyncio.sleep
"""Lets so many seconds go by: every timer due in them fires, in order, and all it starts runs on."""


class _JumpingSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(_STUCK_S)
            if not ready:
                raise RuntimeError("nothing is due and nothing can happen: the test waits for ever")
            return ready
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is still while anything can run."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Work is done on the spot: a thread would need time that does not pass here."""
        done: asyncio.Future[_T] = self.create_future()
        done.set_result(func(*args))
        return done


VIRTUAL: Final = ("asyncio", {"loop_factory": VirtualLoop})
"""What an `anyio_backend` fixture returns to run its tests on such a loop."""
