"""The event stream of a model, taken apart without losing a byte of it. Pure: bytes in, events out.

One answer of a model as it comes in: read no faster than it is taken, and given up when it stalls.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple, Self

from toolgate.upstream.http.client_connection import HttpClientConnection, HttpResponse, StreamRefused
from toolgate.upstream.http.sse import EventTooLarge, SseParser

DONE: Final = b"[DONE]"
"""The payload by which OpenAI's chat streams end. Nothing that comes after it counts."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024

_LINE_ENDS: Final = (b"\n", b"\r\n", b"\r")


class ModelEvent(NamedTuple):
    """One event, with all that stood before it: `b"".join` of the raws is the stream."""

    raw: bytes
    data: bytes | None
    """The payload; None for what has none, such as comments."""


class ModelEventReader:
    """Feed it what the connection delivers."""

    __slots__ = ("_last", "_max_event_bytes", "_parser", "_raw")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._parser = SseParser(max_event_bytes)
        self._raw = bytearray()
        self._last = b"\n"
        """The newest byte. A stream begins as a line does."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """The events that `chunk` completes. Raises EventTooLarge, after which the reader is of no use."""
        events: list[ModelEvent] = []
        for line in chunk.splitlines(keepends=True):
            # A LF after a CR is the rest of that line's end, even where they come apart.
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
        """What is left at the end of the stream. Many servers leave out the last blank line."""
        if not self._raw:
            return []
        found = self._parser.feed(b"\n\n\n")  # one may be the rest of a CRLF, one ends a line
        return [self._take(found[0].data if found else None)]

    def _take(self, data: bytes | None) -> ModelEvent:
        raw = bytes(self._raw)
        self._raw.clear()
        return ModelEvent(raw, data)


MAX_WAITING_BYTES: Final = 256 * 1024
"""When more than that waits to be taken, the server is not read on."""
_MAX_IN_A_ROW: Final = 16
"""After so many that had come already, others have their turn on the loop."""


class EventIntake:
    """The Sink of one request: bytes come in at one end, events are taken at the other.

    Invariant: it is paused only while events wait, so taking them all always lets more come.
    """

    def __init__(self, *, silence_s: float, deadline_s: float) -> None:
        """At most `silence_s` until the answer begins, and between its parts; `deadline_s` for all of it."""
        self._loop = asyncio.get_running_loop()
        self.silence_s = silence_s
        self._deadline_s = deadline_s
        self._heard_s = self._loop.time()
        self._reader = ModelEventReader()
        self._events: deque[ModelEvent] = deque()
        self.waiting_bytes = 0
        self._is_paused = False
        self._in_a_row = 0
        """Events taken without waiting for any."""
        self._wake: asyncio.Future[None] | None = None
        self._connection: HttpClientConnection
        self._answer: asyncio.Future[HttpResponse]
        self.has_begun = False
        """Whether what comes is an event stream."""

    @property
    def is_over(self) -> bool:
        """Whether the time for all of it has passed."""
        return self._loop.time() >= self._deadline_s

    def attach(self, connection: HttpClientConnection, answer: asyncio.Future[HttpResponse]) -> None:
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
                self._reader = ModelEventReader()  # what follows is not looked at
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

    async def begun(self) -> HttpResponse | None:
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

    def _on_done(self, answer: asyncio.Future[HttpResponse]) -> None:
        if not answer.cancelled():
            answer.exception()  # whoever was to take it may have gone at the very moment
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
