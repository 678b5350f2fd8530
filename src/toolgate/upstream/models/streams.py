"""One answer of a model as it comes in: read no faster than it is taken, and given up when it stalls."""

import asyncio
from collections import deque
from typing import Final, Self

from toolgate.upstream.http.client_connection import Answer, HttpConnection, StreamRefused
from toolgate.upstream.http.sse import EventTooLarge
from toolgate.upstream.models.events import DONE, EventReader, ModelEvent

MAX_WAITING_BYTES: Final = 256 * 1024
"""When more than that waits to be taken, the server is not read on."""
_MAX_IN_A_ROW: Final = 16
"""After so many that had come already, others have their turn on the loop."""


class Inflow:
    """The Sink of one request: bytes come in at one end, events are taken at the other.

    Invariant: it is paused only while events wait, so taking them all always lets more come.
    """

    def __init__(self, *, silence_s: float, deadline_s: float) -> None:
        """At most `silence_s` until the answer begins, and between its parts; `deadline_s` for all of it."""
        self._loop = asyncio.get_running_loop()
        self.silence_s = silence_s
        self._deadline_s = deadline_s
        self._heard_s = self._loop.time()
        self._reader = EventReader()
        self._events: deque[ModelEvent] = deque()
        self.waiting_bytes = 0
        self._is_paused = False
        self._in_a_row = 0
        """Events taken without waiting for any."""
        self._wake: asyncio.Future[None] | None = None
        self._connection: HttpConnection
        self._answer: asyncio.Future[Answer]
        self.has_begun = False
        """Whether what comes is an event stream."""

    @property
    def is_over(self) -> bool:
        """Whether the time for all of it has passed."""
        return self._loop.time() >= self._deadline_s

    def attach(self, connection: HttpConnection, answer: asyncio.Future[Answer]) -> None:
        """What it takes its answer from: the request has been written."""
        self._connection = connection
        self._answer = answer
        answer.add_done_callback(self._on_done)

    # What comes in: upstream.http_connection.Sink

    def begin(self) -> None:
        self.has_begun = True
        self._heard_s = self._loop.time()
        self._rouse()

    def feed(self, chunk: bytes) -> bool:
        self._heard_s = self._loop.time()
        try:
            events = self._reader.feed(chunk)
        except EventTooLarge as exc:
            raise StreamRefused(f"on its stream, {exc}") from exc
        for event in events:
            self._events.append(event)
            self.waiting_bytes += len(event.raw)
            if event.data == DONE:
                self._reader = EventReader()  # what follows is not looked at
                self._rouse()
                return True
        if self.waiting_bytes > MAX_WAITING_BYTES and not self._is_paused:
            self._is_paused = True
            self._connection.pause()
        if events:
            self._rouse()
        return False

    def deadline(self, deadline: float) -> float:
        """While it is paused, silence is ours."""
        del deadline
        heard_s = self._loop.time() if self._is_paused else self._heard_s
        return min(heard_s + self.silence_s, self._deadline_s)

    # What is taken

    async def begun(self) -> Answer | None:
        """Wait until the answer begins. None: events come; else it is an answer of another kind.

        Raises ExchangeFailed and ExchangeTimedOut, here and where events are taken.
        """
        try:
            while not self.has_begun and not self._answer.done():
                await self._wait()
        except asyncio.CancelledError:
            self.abandon()
            raise
        return None if self.has_begun else self._answer.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._events:
            if self._answer.done():
                return self._last()
            await self._wait()
        self._in_a_row += 1
        if self._in_a_row >= _MAX_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        event = self._events.popleft()
        self.waiting_bytes -= len(event.raw)
        if self._is_paused and self.waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._read_on()
        return event

    def abandon(self) -> None:
        """Nobody takes more. What is unfinished is given up, and with it the connection."""
        self._connection.abandon(self._answer)

    def _read_on(self) -> None:
        self._is_paused = False
        self._heard_s = self._loop.time()
        if not self._answer.done():  # else the connection may serve another by now
            self._connection.resume()

    def _last(self) -> ModelEvent:
        self._answer.result()
        for event in self._reader.finish():
            return event
        raise StopAsyncIteration

    async def _wait(self) -> None:
        self._in_a_row = 0
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _on_done(self, answer: asyncio.Future[Answer]) -> None:
        if not answer.cancelled():
            answer.exception()  # whoever was to take it may have gone at the very moment
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
