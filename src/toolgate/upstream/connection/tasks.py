"""Requests whose answers come on the one stream of a link: who waits for which, and until when."""

import asyncio
from collections.abc import Callable

from toolgate.upstream.connection.contract import Reply
from toolgate.upstream.limits import LOOK_AGAIN_S


class Unanswered:
    """Those of one link, by their numbers. An answer finds its request once."""

    def __init__(self, deadline_of: Callable[[bytes, float], float]) -> None:
        """`deadline_of` says when the time of a request is up, which was to be at the deadline given."""
        self._deadline_of = deadline_of
        self._loop = asyncio.get_running_loop()
        self._answers: dict[bytes, asyncio.Future[Reply]] = {}
        self._timers: dict[bytes, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, key: bytes, deadline: float, late: Callable[[], Exception]) -> asyncio.Future[Reply]:
        """The answer to request `key`, to be waited for. `late` makes what is raised when the time is up.

        Every one needs its `remove`.
        """
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._answers[key] = answer
        self._timers[key] = self._loop.call_at(deadline, self._look, key, deadline, late)
        return answer

    def remove(self, key: bytes) -> None:
        """Nobody waits for it any more."""
        self._answers.pop(key, None)
        self._timers.pop(key).cancel()

    def answer(self, key: bytes, reply: Reply) -> bool:
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
            again_s = min(deadline, now + LOOK_AGAIN_S)
            self._timers[key] = self._loop.call_at(again_s, self._look, key, deadline, late)
