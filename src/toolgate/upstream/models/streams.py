"""The event stream of a model: `ModelEventReader` splits it without losing a byte, `EventIntake` buffers it.

The intake reads no faster than its consumer, and gives a stream up when it stalls.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple, Self

from toolgate.upstream.http.client_connection import HttpClientConnection, HttpResponse, StreamRefused
from toolgate.upstream.http.sse import EventTooLarge, SseParser

DONE: Final = b"[DONE]"
"""The payload that ends OpenAI's chat streams. Everything after it is ignored."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024

_LINE_ENDS: Final = (b"\n", b"\r\n", b"\r")


class ModelEvent(NamedTuple):
    """One event with all bytes before it: `b"".join` of the raws is the stream."""

    raw: bytes
    data: bytes | None
    """The payload; None if it has no payload, as in comments."""


class ModelEventReader:
    """Splits the bytes of a stream into events. Pure."""

    __slots__ = ("_last", "_max_event_bytes", "_parser", "_raw")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._parser = SseParser(max_event_bytes)
        self._raw = bytearray()
        self._last = b"\n"
        """The newest byte. The beginning of a stream counts as the beginning of a line."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """The events that `chunk` completes. Raises EventTooLarge; the reader is unusable after that."""
        events: list[ModelEvent] = []
        for line in chunk.splitlines(keepends=True):
            # A LF after a CR belongs to the same line end, even in the next chunk.
            is_rest = line == b"\n" and self._last == b"\r"
            is_blank = line in _LINE_ENDS and self._last in _LINE_ENDS and not is_rest
            self._last = line[-1:]
            self._raw += line
            found = self._parser.feed(line)
            if is_blank:
                events.append(self._take(found[0].data if found else None))
        if len(self._raw) > self._max_event_bytes:
            raise EventTooLarge(f"an event is longer than {self._max_event_bytes} bytes")
        return events

    def finish(self) -> list[ModelEvent]:
        """The rest at the end of the stream. Many servers leave out the last blank line."""
        if not self._raw:
            return []
        found = self._parser.feed(b"\n\n\n")  # one may be the rest of a CRLF, one ends a line
        return [self._take(found[0].data if found else None)]

    def _take(self, data: bytes | None) -> ModelEvent:
        raw = bytes(self._raw)
        self._raw.clear()
        return ModelEvent(raw, data)


MAX_WAITING_BYTES: Final = 256 * 1024
"""When more than this waits for the consumer, the connection is paused."""
_MAX_UNAWAITED: Final = 16
"""After this many events without waiting, the stream yields to other tasks."""


class EventIntake:
    """The sink of one request: bytes come in at one end, the consumer takes events at the other.

    Invariant: it is paused only while events wait, so taking them all always lets more come.
    """

    def __init__(self, *, silence_s: float, deadline_s: float) -> None:
        """`silence_s`: until the response begins, and between its parts. `deadline_s`: for all of it."""
        self._loop = asyncio.get_running_loop()
        self.silence_s = silence_s
        self._deadline_s = deadline_s
        self._received_s = self._loop.time()
        self._reader = ModelEventReader()
        self._events: deque[ModelEvent] = deque()
        self.waiting_bytes = 0
        self._is_paused = False
        self._unawaited = 0
        """Events taken without waiting for any."""
        self._wake: asyncio.Future[None] | None = None
        self._connection: HttpClientConnection
        self._response: asyncio.Future[HttpResponse]
        self.has_begun = False
        """Whether the response is an event stream."""

    @property
    def is_over(self) -> bool:
        """Whether its whole time has passed."""
        return self._loop.time() >= self._deadline_s

    def attach(self, connection: HttpClientConnection, response: asyncio.Future[HttpResponse]) -> None:
        """The request was written on `connection`, and `response` is its future."""
        self._connection = connection
        self._response = response
        response.add_done_callback(self._on_done)

    # From the connection: see `StreamSink`

    def begin(self) -> None:
        self.has_begun = True
        self._received_s = self._loop.time()
        self._wake_consumer()

    def feed(self, chunk: bytes) -> bool:
        self._received_s = self._loop.time()
        try:
            events = self._reader.feed(chunk)
        except EventTooLarge as exc:
            raise StreamRefused(f"on its stream, {exc}") from exc
        for event in events:
            self._events.append(event)
            self.waiting_bytes += len(event.raw)
            if event.data == DONE:
                self._reader = ModelEventReader()  # ignores what follows
                self._wake_consumer()
                return True
        if self.waiting_bytes > MAX_WAITING_BYTES and not self._is_paused:
            self._is_paused = True
            self._connection.pause()
        if events:
            self._wake_consumer()
        return False

    def deadline(self, deadline: float) -> float:
        """While it is paused, the silence is not the server's."""
        del deadline
        received_s = self._loop.time() if self._is_paused else self._received_s
        return min(received_s + self.silence_s, self._deadline_s)

    # To the consumer

    async def wait_for_begin(self) -> HttpResponse | None:
        """Wait until the response begins. None if it is an event stream.

        Raises ExchangeFailed and ExchangeTimedOut, as does taking events.
        """
        try:
            while not self.has_begun and not self._response.done():
                await self._wait()
        except asyncio.CancelledError:
            self.abandon()
            raise
        return None if self.has_begun else self._response.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._events:
            if self._response.done():
                return self._finish()
            await self._wait()
        self._unawaited += 1
        if self._unawaited >= _MAX_UNAWAITED:
            self._unawaited = 0
            await asyncio.sleep(0)
        event = self._events.popleft()
        self.waiting_bytes -= len(event.raw)
        if self._is_paused and self.waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._resume()
        return event

    def abandon(self) -> None:
        """Stop taking events. An unfinished stream costs the connection."""
        self._connection.abandon(self._response)

    def _resume(self) -> None:
        self._is_paused = False
        self._received_s = self._loop.time()
        if not self._response.done():  # else the connection may serve another request by now
            self._connection.resume()

    def _finish(self) -> ModelEvent:
        self._response.result()
        for event in self._reader.finish():
            return event
        raise StopAsyncIteration

    async def _wait(self) -> None:
        self._unawaited = 0
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _on_done(self, response: asyncio.Future[HttpResponse]) -> None:
        if not response.cancelled():
            response.exception()  # the consumer may have left at this very moment
        self._wake_consumer()

    def _wake_consumer(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
