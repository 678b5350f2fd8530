"""What a link does beside its requests, ended with the link.

Requests whose answers come on the one stream of a link: who waits for which, and until when.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from toolgate.upstream.connection.contract import DEADLINE_CHECK_S, RpcResponse

_log: Final = logging.getLogger(__name__)


class BackgroundTasks:
    """The tasks of one link. They look after their own failures; one that does not is a bug, and logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def size(self) -> int:
        """How many are running."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run `work` beside; None when the link has ended."""
        if self._is_closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def cancel(self) -> None:
        """End it all and take no more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        """As `cancel`, and wait for the end."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("background work of a link failed", exc_info=exc)


class PendingRequests:
    """Those of one link, by their numbers. An answer finds its request once."""

    def __init__(self, deadline_of: Callable[[bytes, float], float]) -> None:
        """`deadline_of` says when the time of a request is up, which was to be at the deadline given."""
        self._deadline_of = deadline_of
        self._loop = asyncio.get_running_loop()
        self._answers: dict[bytes, asyncio.Future[RpcResponse]] = {}
        self._timers: dict[bytes, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, key: bytes, deadline: float, late: Callable[[], Exception]) -> asyncio.Future[RpcResponse]:
        """The answer to request `key`, to be waited for. `late` makes what is raised when the time is up.

        Every one needs its `remove`.
        """
        answer: asyncio.Future[RpcResponse] = self._loop.create_future()
        self._answers[key] = answer
        self._timers[key] = self._loop.call_at(deadline, self._look, key, deadline, late)
        return answer

    def remove(self, key: bytes) -> None:
        """Nobody waits for it any more."""
        self._answers.pop(key, None)
        self._timers.pop(key).cancel()

    def answer(self, key: bytes, reply: RpcResponse) -> bool:
        """Whether somebody waited for it."""
        answer = self._answers.pop(key, None)
        if answer is None or answer.done():
            return False
        answer.set_result(reply)
        return True

    def fail(self, key: bytes, error: Exception) -> None:
        """No effect where nobody waits."""
        answer = self._answers.pop(key, None)
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def fail_all(self, error: Callable[[], Exception]) -> None:
        for key in tuple(self._answers):
            self.fail(key, error())

    def _look(self, key: bytes, deadline: float, late: Callable[[], Exception]) -> None:
        now, deadline = self._loop.time(), self._deadline_of(key, deadline)
        if deadline <= now:
            self.fail(key, late())
        elif key in self._answers:
            # Not at the deadline itself: it may become sooner.
            again_s = min(deadline, now + DEADLINE_CHECK_S)
            self._timers[key] = self._loop.call_at(again_s, self._look, key, deadline, late)
