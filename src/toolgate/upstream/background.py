"""What a link does beside its requests, ended with the link."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

_log: Final = logging.getLogger(__name__)


class Background:
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
