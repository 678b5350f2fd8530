"""The connections to one chat upstream, the requests and event streams on them, and its server's errors.

`ModelEventReader` splits a stream without losing a byte; `ModelEventStream` buffers it. No error shows a
credential, and no response shows the upstream's key to a caller.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self

import msgspec

from toolgate.errors import ModelRefused, ModelTimedOut, ModelUnavailable
from toolgate.model.json_text import decode_members
from toolgate.redaction.shapes import looks_secret
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.http.client_connection import (
    ConnectFailed,
    ExchangeTimedOut,
    HttpClientConnection,
    HttpFailure,
    HttpResponse,
)
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.endpoint import RequestHeads, ResolvedEndpoint, with_body
from toolgate.upstream.http.responses import parse_retry_after_s
from toolgate.upstream.http.sse import SseParser, StreamRefused

RETRYABLE: Final = (429, 502, 503, 504)
"""Statuses of a server, or of a proxy in front of it, that is busy or away for a moment."""
_MIN_KEY_LENGTH: Final = 16
"""Shorter keys are placeholders (`lm-studio`, `ollama`): words in responses, which must not change."""
_MAX_QUOTED: Final = 500  # characters of an error message: a few sentences; `data.body` has the whole
DONE: Final = b"[DONE]"
"""The payload that ends OpenAI's chat streams. Everything after it is ignored."""
MAX_EVENT_BYTES: Final = 8 * 1024 * 1024  # as a whole response: one event may carry all of it

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
        """The events that `chunk` completes. Raises StreamRefused; the reader is unusable after that."""
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
            raise StreamRefused(f"an event on the stream is longer than {self._max_event_bytes} bytes")
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


class ModelEventStream:
    """The sink of one request: bytes come in at one end, the consumer takes events at the other, in order.

    It reads no faster than its consumer, ends with the stream or raises its error, and gives a stream up when
    it stalls. Invariant: it is paused only while events wait, so taking them all always lets more come.
    """

    def __init__(self, endpoint: "ModelEndpoint", *, silence_s: float, deadline_s: float) -> None:
        """`silence_s`: until the response begins, and between its parts. `deadline_s`: for all of it."""
        self._loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self.on_event: Callable[[ModelEvent], bool] | None = None
        """Called with each event; returns whether the consumer gets it."""
        self.silence_s = silence_s
        self._deadline_s = deadline_s
        self._received_s = self._loop.time()
        self._reader = ModelEventReader()
        self._events: deque[ModelEvent] = deque()
        self.waiting_bytes = 0
        """Bytes that the consumer has not taken."""
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
        return self._loop.time() >= self._deadline_s

    def attach(self, connection: HttpClientConnection, response: asyncio.Future[HttpResponse]) -> None:
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
        events = self._reader.feed(chunk)
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
        """None once an event stream begins, else the response. Raises ExchangeFailed and ExchangeTimedOut."""
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
        """Raises ModelUnavailable and ModelTimedOut."""
        while True:
            try:
                event = await self._take()
            except HttpFailure as exc:
                raise self._endpoint.explain_exchange_error(exc, self) from exc
            raw = self._endpoint.redact(event.raw)
            if raw is not event.raw:
                event = ModelEvent(raw, event.data and self._endpoint.redact(event.data))
            if self.on_event is None or self.on_event(event):
                return event

    async def _take(self) -> ModelEvent:
        while not self._events:
            if self._response.done():
                self._response.result()
                for event in self._reader.finish():
                    return event
                raise StopAsyncIteration
            await self._wait()
        self._unawaited += 1
        if self._unawaited >= _MAX_UNAWAITED:
            self._unawaited = 0
            await asyncio.sleep(0)
        event = self._events.popleft()
        self.waiting_bytes -= len(event.raw)
        if self._is_paused and self.waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._is_paused = False
            self._received_s = self._loop.time()
            if not self._response.done():  # else the connection may serve another request by now
                self._connection.resume()
        return event

    def abandon(self) -> None:
        """Stop taking events. An unfinished stream costs the connection."""
        self._connection.abandon(self._response)

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


class TransientFailure(Exception):
    """A failure that may pass in a moment. The request had no effect."""

    def __init__(self, failure: ModelUnavailable | ModelRefused, *, delay_s: float = 0.0) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.delay_s = delay_s
        """The delay that the server requests."""


class ModelEndpoint:
    """One upstream with its record and this node's secrets; retired when either changes."""

    def __init__(self, upstream_id: str, resolved: ResolvedEndpoint) -> None:
        """Raises StartFailed if a header cannot be sent."""
        self._upstream_id = upstream_id
        self._redactor = Redactor(resolved.credentials)
        """For error messages."""
        secret_values = (value for name, value in resolved.headers.items() if looks_secret(name))
        words = (word for value in secret_values for word in value.split())
        self._keys = Redactor([word for word in words if len(word) >= _MIN_KEY_LENGTH])
        """Certain keys, by header name and length: redacted in responses."""
        self._resolved = resolved
        self._description = f"chat upstream `{upstream_id}` at `{resolved.target.address}`"
        self.pool = resolved.pool
        self._heads = {"": RequestHeads(resolved.target, resolved.headers)}
        """By path; the gateway uses a few only."""
        self._users = 0
        self._is_retired = False

    def is_current(self, url: str, headers: dict[str, str]) -> bool:
        """Whether it sends this URL and these headers: a change replaces it."""
        return self._resolved.url == url and self._resolved.headers == headers

    def encode_request(self, path: str, body: bytes) -> bytes:
        heads = self._heads.get(path)
        if heads is None:
            base, mark, query = self._resolved.target.path.partition("?")
            target = replace(self._resolved.target, path=base.rstrip("/") + path + mark + query)
            heads = self._heads[path] = RequestHeads(target, self._resolved.headers)
        return with_body(heads.initialize(), body) if body else heads.get()

    def redact(self, part: bytes) -> bytes:
        """`part` of a response: unchanged, the same object, unless it shows the upstream's key."""
        return self._keys.raw(part)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A retired endpoint closes when its last user has left."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_unused()

    def retire(self) -> None:
        self._is_retired = True
        self._close_unused()

    def _close_unused(self) -> None:
        if self._is_retired and not self._users:
            self.pool.close()

    # Its errors

    def explain_exchange_error(
        self, exc: HttpFailure, stream: ModelEventStream
    ) -> ModelUnavailable | ModelTimedOut | TransientFailure:
        reason = self._redactor.text(str(exc))
        if isinstance(exc, ConnectFailed):
            failure = ModelUnavailable(f"chat upstream `{self._upstream_id}` cannot be reached: {reason}")
            return failure if isinstance(exc.__cause__, EgressRefused) else TransientFailure(failure)
        if isinstance(exc, ExchangeTimedOut):
            silent = f"sent nothing for {stream.silence_s:g} s"
            why = "did not finish within the time of the request" if stream.is_over else silent
            return ModelTimedOut(f"{self._description} {why}")
        return ModelUnavailable(f"{self._description} sent no usable response: {reason}")

    def explain_rejection(self, response: HttpResponse) -> ModelUnavailable | ModelRefused | TransientFailure:
        status = response.status
        if status < 400:
            reason = f"responded with status {status} (a redirect, which the gateway does not follow)"
            return ModelUnavailable(f"{self._description} {reason}")
        body = self._redactor.raw(bytes(response.body)).decode(errors="replace")
        delay_s = parse_retry_after_s(response)
        data: dict[str, Any] = {"status": status, "body": body}
        if delay_s is not None:
            data["retry_after"] = delay_s
        reason = f"{self._description} responded with status {status}{_quote_error(body)}"
        failure = ModelRefused(reason, data=data)
        return TransientFailure(failure, delay_s=delay_s or 0.0) if status in RETRYABLE else failure


def _quote_error(body: str) -> str:
    try:
        error = decode_members(body.encode()).get("error", msgspec.Raw(b"null"))
        message = decode_members(error).get("message", error) if bytes(error).startswith(b"{") else error
        text = msgspec.json.decode(message, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {text[:_MAX_QUOTED]}"
