"""Claims invocations from the queue, as many as there are free slots, and runs each to its end.

The queue decides which. This node claims only what it can start at once, so invocations wait nowhere but in
the queue.
"""

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from toolgate.errors import ToolgateError
from toolgate.model.invocations import Invocation
from toolgate.surfaces.wasm.invocation import GuestServices, InvocationRun, LeaseTiming

CLAIM_WAIT_S: Final = 20.0
"""How long one claim waits for work."""
RETRY_S: Final = 2.0
LAST_REPORTS_S: Final = 5.0
"""For the last reports of runs that were killed because the node stops."""

_log = logging.getLogger(__name__)


class Invoker:
    """Runs at most `max_guests` at once; with 0 it claims none. When stopped, it waits `drain_s` for them."""

    def __init__(
        self,
        services: GuestServices,
        *,
        node_id: str,
        max_guests: int,
        drain_s: float,
        timing: LeaseTiming | None = None,
    ) -> None:
        self._services = services
        self._node_id = node_id
        self._max_guests = max_guests
        self._drain_s = drain_s
        self._timing = timing or LeaseTiming()
        self._running: dict[asyncio.Task[None], InvocationRun] = {}
        self._room = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._drained_at_s: float | None = None

    def __len__(self) -> int:
        """The number of running invocations."""
        return len(self._running)

    async def __aenter__(self) -> Self:
        if self._max_guests:
            self._claiming = asyncio.create_task(self._claim())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        try:
            await self._drain()
        finally:
            ending = [*self._running, *([] if self._claiming is None else [self._claiming])]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def stop(self) -> None:
        """Claim no more. Those that run have `drain_s` to end."""
        if self._claiming is not None:
            self._claiming.cancel()
        if self._drained_at_s is None:
            self._drained_at_s = asyncio.get_running_loop().time() + self._drain_s

    async def _drain(self) -> None:
        if not self._running:
            return
        left_s = (self._drained_at_s or 0) - asyncio.get_running_loop().time()
        await asyncio.wait(self._running, timeout=max(0, left_s))
        for running in self._running.values():
            running.stop("node_stopped", "its node stopped, and its time to drain was over")
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_REPORTS_S)

    async def _claim(self) -> None:
        is_failing = False
        while True:
            while not (free := self._max_guests - len(self._running)):
                self._room.clear()
                await self._room.wait()
            try:
                claimed = await self._services.queue.claim(self._node_id, limit=free, wait_s=CLAIM_WAIT_S)
            except Exception as exc:  # this task is the only one that claims
                if not isinstance(exc, ToolgateError):
                    _log.exception("cannot claim invocations")
                elif not is_failing:
                    _log.warning("cannot claim invocations: %s", exc)
                is_failing = True
                await asyncio.sleep(RETRY_S)
                continue
            is_failing = False
            for invocation in claimed:
                self._begin(invocation)

    def _begin(self, invocation: Invocation) -> None:
        running = InvocationRun(invocation, self._services, self._timing)
        task = asyncio.create_task(running.conduct())
        self._running[task] = running
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self._room.set()
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("an invocation was lost inside the node", exc_info=exc)
