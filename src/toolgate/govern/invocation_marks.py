"""Those who wait for runs of tasks and follow them: one look at the queue serves all of them.

However many there are, and however much happens to runs that nobody follows, the database is asked one thing
a few times a second.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from toolgate.registry.invocations.contract import InvocationProgress, Invocations

_PAUSE_S: Final = 0.01
_PAUSE_EACH_S: Final = 0.0005
"""Between two looks, by how many wait: news is at most so much late."""


class InvocationPoller:
    """Who waits for news of which invocation. Looks only while somebody does."""

    def __init__(self) -> None:
        self._waiting: dict[
            asyncio.Future[InvocationProgress | None], tuple[str, InvocationProgress | None]
        ] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait_for_change(
        self, invocations: Invocations, invocation_id: str, seen: InvocationProgress | None
    ) -> InvocationProgress | None:
        """How far it has come, once that is further than `seen`; None: it is not there any more.

        Raises what the queue raises.
        """
        news: asyncio.Future[InvocationProgress | None] = asyncio.get_running_loop().create_future()
        with self._held(news, invocation_id, seen):
            # What happened before somebody looks for it is seen here.
            mark = (await invocations.marks([invocation_id])).get(invocation_id)
            if mark != seen or mark is None:
                return mark
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._poll(invocations))
            return await news

    @contextmanager
    def _held(
        self,
        news: "asyncio.Future[InvocationProgress | None]",
        invocation_id: str,
        seen: InvocationProgress | None,
    ) -> Iterator[None]:
        self._waiting[news] = (invocation_id, seen)
        try:
            yield
        finally:
            del self._waiting[news]
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _poll(self, invocations: Invocations) -> None:
        try:
            while True:
                count = await invocations.changed(-1)  # first: what changes while we look is not missed
                marks = await invocations.marks({one for one, _ in self._waiting.values()})
                for news, (invocation_id, seen) in self._waiting.items():
                    if not news.done() and marks.get(invocation_id) != seen:
                        news.set_result(marks.get(invocation_id))
                await asyncio.sleep(_PAUSE_S + _PAUSE_EACH_S * len(self._waiting))
                await invocations.changed(count)
        except Exception as exc:  # it is of those who wait: each tells its own caller
            for news in self._waiting:
                if not news.done():
                    news.set_exception(exc)
