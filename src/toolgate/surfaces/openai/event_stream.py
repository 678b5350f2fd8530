"""An answer as a stream of events, as far as it is bytes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from toolgate.surfaces.http.events import EVENT_HEADERS, KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.openai.exchange import Exchange


class EventStream:
    """Begins with the first bytes: what fails before that has a status of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._responder = exchange.responder
        self._headers = [*EVENT_HEADERS, exchange.told_id]
        self._is_busy = False
        self.has_begun = False
        """Something was sent: an error has no status of its own any more."""

    async def put(self, data: bytes) -> None:
        """Returns when the client has read most of it."""
        if not data:
            return
        if not self.has_begun:
            self.has_begun = True
            self._responder.start(200, self._headers)
        self._is_busy = True
        try:
            await self._responder.write(data)
        finally:
            self._is_busy = False

    def end(self) -> None:
        self._responder.end()

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """While the block runs, nobody on the way takes silence for the end."""
        keeping = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            yield
        finally:
            keeping.cancel()  # it is between two words, or in one that nobody waits for

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            if not self._is_busy:  # a client that is slow to read has enough to read
                await self.put(KEEPALIVE)
