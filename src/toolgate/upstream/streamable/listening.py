"""A stream kept open for what a server says unasked, `list_changed` above all.

It is a convenience: lists are read again after a while anyway. So it never ends a link, gives up where the
server does not offer it, and never reconnects faster than `MIN_DELAY_S`, whatever `retry` a server sends.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from toolgate.upstream.http.client_connection import ExchangeFailed
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.responses import Inbox, PendingResponse, retry_after_s

MIN_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 30.0
_MAX_FAILURES: Final = 8
"""So many attempts in a row without a stream, which takes about two minutes, and it is given up."""

_LASTING_S: Final = 5.0
"""A stream that ends sooner was hardly worth opening; the next waits longer."""


class _Stream(PendingResponse):
    """One opening of it."""

    __slots__ = ("_on_open", "has_begun")

    def __init__(self, key: bytes, inbox: Inbox, on_open: Callable[[], None]) -> None:
        super().__init__(key, inbox)
        self._on_open = on_open
        self.has_begun = False

    def begin(self) -> None:
        super().begin()
        self.has_begun = True
        self._on_open()


class Listening:
    """One server's stream, opened again and again."""

    def __init__(
        self,
        pool: HttpPool,
        inbox: Inbox,
        *,
        request: Callable[[bytes], tuple[bytes, bytes]],
        on_missed: Callable[[], None],
        on_open: Callable[[], None] | None = None,
    ) -> None:
        """`request` takes a position and makes another request for the stream, after its number if any.

        `on_open` is told whenever the stream has opened, `on_missed` when it was open before: what was said
        in between is lost.
        """
        self._pool = pool
        self._inbox = inbox
        self._request = request
        self._on_missed = on_missed
        self._on_open = on_open
        self._position = b""
        self._delay_s = MIN_DELAY_S
        self._failures = 0
        self._has_opened = False
        self._asked_s = 0
        """How long the server asked to be left alone when it last refused the stream."""

    async def run(self) -> None:
        """Until the server ends it for good, or the caller does."""
        while self._failures < _MAX_FAILURES:
            self._asked_s = 0
            key, request = self._request(self._position)
            stream = _Stream(key, self._inbox, self._opened)
            began_s = asyncio.get_running_loop().time()
            if await self._ends_with(stream, request):
                return
            lived_s = asyncio.get_running_loop().time() - began_s
            await asyncio.sleep(self._next_delay_s(stream, lived_s))

    async def _ends_with(self, stream: _Stream, request: bytes) -> bool:
        """Follow one stream to its end. True when there is no point in another."""
        try:
            answer = await self._pool.send(request, deadline=None, sink=stream)
        except (ConnectFailed, ExchangeFailed):
            return False
        is_refused = stream.response is not None and bool(stream.response.error)
        self._asked_s = retry_after_s(answer) or 0
        return is_refused or not (answer.is_stream or answer.status == 429 or answer.status >= 500)

    def _opened(self) -> None:
        if self._on_open is not None:
            self._on_open()
        if self._has_opened:
            self._on_missed()
        self._has_opened = True

    def _next_delay_s(self, stream: _Stream, lived_s: float) -> float:
        """Twice as long each time, from the start again after a stream that lasted."""
        self._position = stream.position
        self._failures = 0 if stream.has_begun else self._failures + 1
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, _MAX_DELAY_S)
        if stream.has_begun and lived_s > _LASTING_S:
            delay_s, self._delay_s = MIN_DELAY_S, MIN_DELAY_S * 2
        return min(max(delay_s, stream.retry_s, self._asked_s), _MAX_DELAY_S)
