"""The event stream of one answer of the Responses API, as far as it is bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from toolgate.errors import ToolgateError
from toolgate.surfaces.http.events import EVENT_HEADERS, KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.openai.exchange import Exchange


class EventStream:
    """Begins with the first bytes: what fails before that has a status of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._responder = exchange.responder
        self._headers = [*EVENT_HEADERS, (b"x-request-id", exchange.request_id.encode())]
        self._is_busy = False
        self.has_begun = False

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

    @asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """While the block runs, nobody on the way takes silence for the end."""
        keeping = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            if not self._is_busy:  # a client that is slow to read has enough to read
                await self.put(KEEPALIVE)


def encode_error(exc: ToolgateError) -> bytes:
    """How a stream of the model's server ends that broke off. How many events there were is not counted."""
    said = {
        "type": "error",
        "sequence_number": 0,
        "code": exc.code,
        "message": f"{exc}. {exc.hint}",
        "param": None,
    }
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(said)
