"""The background tasks of a connection, and the requests that wait for a response on its stream.

Both end with their connection. Neither knows a transport.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from toolgate.upstream.connection.contract import DEADLINE_CHECK_S, RpcResponse

_log: Final = logging.getLogger(__name__)


class BackgroundTasks:
    """The tasks of one connection. They handle their own failures; an exception is a bug and is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def size(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run `work` in the background; None once the connection has ended."""
        if self._is_closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def cancel(self) -> None:
        """Cancel all tasks and accept no more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("a background task of a connection failed", exc_info=exc)


class PendingRequests:
    """The requests of one connection that wait for a response, by number. A response is delivered once."""

    def __init__(self, deadline_of: Callable[[bytes, float], float]) -> None:
        """`deadline_of` returns the current deadline of a request, given its original one."""
        self._deadline_of = deadline_of
        self._loop = asyncio.get_running_loop()
        self._responses: dict[bytes, asyncio.Future[RpcResponse]] = {}
        self._timers: dict[bytes, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._responses)

    def add(
        self, key: bytes, deadline: float, build_timeout: Callable[[], Exception]
    ) -> asyncio.Future[RpcResponse]:
        """The future response to request `key`. It fails with `build_timeout()` at the deadline.

        Every `add` needs its `remove`.
        """
        response: asyncio.Future[RpcResponse] = self._loop.create_future()
        self._responses[key] = response
        self._timers[key] = self._loop.call_at(deadline, self._check_deadline, key, deadline, build_timeout)
        return response

    def remove(self, key: bytes) -> None:
        self._responses.pop(key, None)
        self._timers.pop(key).cancel()

    def resolve(self, key: bytes, response: RpcResponse) -> bool:
        """Deliver a response. False if no request waits for it."""
        future = self._responses.pop(key, None)
        if future is None or future.done():
            return False
        future.set_result(response)
        return True

    def fail(self, key: bytes, error: Exception) -> None:
        """Fail a request; no effect if it does not wait any more."""
        future = self._responses.pop(key, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def fail_all(self, build_error: Callable[[], Exception]) -> None:
        for key in tuple(self._responses):
            self.fail(key, build_error())

    def _check_deadline(self, key: bytes, deadline: float, build_timeout: Callable[[], Exception]) -> None:
        now, deadline = self._loop.time(), self._deadline_of(key, deadline)
        if deadline <= now:
            self.fail(key, build_timeout())
        elif key in self._responses:
            # Not at the deadline itself: it may move back.
            check_at = min(deadline, now + DEADLINE_CHECK_S)
            self._timers[key] = self._loop.call_at(
                check_at, self._check_deadline, key, deadline, build_timeout
            )
