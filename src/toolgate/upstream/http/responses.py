"""The JSON-RPC in an HTTP answer: the response to one request of ours, in a body or on a stream."""

from typing import Final, Protocol

from toolgate.model.protocol import LIST_METHODS
from toolgate.model.raw import UNREADABLE
from toolgate.upstream.connection.contract import MAX_MESSAGE_BYTES
from toolgate.upstream.connection.messages import Incoming, decode_incoming, is_utf8
from toolgate.upstream.http.client_connection import Answer, ExchangeFailed, StreamRefused
from toolgate.upstream.http.endpoint import can_be_position
from toolgate.upstream.http.sse import EventTooLarge, SseParser

REPEATABLE: Final = frozenset({*LIST_METHODS.values(), "ping", "server/discover"})
"""Requests that do nothing at a server, and so may be sent again."""
MAX_RETRY_AFTER_S: Final = 60
"""A server that asks to be left alone for longer is asked again all the same."""


class Inbox(Protocol):
    """Whom a server's messages on a stream concern beside the response. A `Relay` is one."""

    def take(self, message: Incoming, request: bytes, /) -> None:
        """A notification, or a request of the server's own, on the stream of our `request`."""

    def deadline_of(self, request: bytes, deadline: float, /) -> float:
        """When the time of `request` is up, which was to be at `deadline`."""


class Rejected(Exception):
    """An HTTP status that is no success. `error` is the JSON-RPC error object in its body, if any."""

    def __init__(self, answer: Answer, error: bytes | None, *, is_ours: bool) -> None:
        super().__init__(f"the server answered {answer.status}")
        self.status = answer.status
        self.error = error
        self.is_ours = is_ours
        """The error names our request, so it is the answer to it whatever the status."""
        self.retry_after_s = retry_after_s(answer)
        """How long the server asks to be left alone."""
        self.challenge = answer.headers.get(b"www-authenticate", b"")
        """What it says it wants to be shown."""


class NoResponse(ExchangeFailed):
    """The exchange ended well as HTTP, and did not bring the response."""


class PendingResponse:
    """The response one request waits for. It is the sink of a stream that may carry it."""

    __slots__ = ("_id", "_inbox", "_parser", "response")

    def __init__(self, key: bytes, inbox: Inbox) -> None:
        """`key` is the number of the request; empty for a stream that belongs to none."""
        self._id = key
        self._inbox = inbox
        self._parser: SseParser | None = None
        self.response: Incoming | None = None
        """The response, once a stream has carried it."""

    @property
    def position(self) -> bytes:
        """The event after which a broken stream can be resumed; empty when it cannot."""
        position = self._parser.last_event_id if self._parser is not None else b""
        return position if can_be_position(position) else b""

    @property
    def retry_s(self) -> float:
        """How long the server asks to wait before that."""
        return (self._parser.retry_ms or 0) / 1000 if self._parser is not None else 0.0

    def begin(self) -> None:
        if self._parser is None:
            self._parser = SseParser(MAX_MESSAGE_BYTES)
        self._parser.restart()

    def feed(self, chunk: bytes) -> bool:
        assert self._parser is not None  # begin() comes first
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as exc:
            raise StreamRefused(f"on the server's stream, {exc}") from exc
        for event in events:
            if event.type == b"message":
                self._take_event(event.data)
        return self.response is not None

    def deadline(self, deadline: float) -> float:
        return self._inbox.deadline_of(self._id, deadline)

    def take(self, answer: Answer) -> Incoming:
        """The response in `answer`, or that came on its stream. Raises Rejected and ExchangeFailed."""
        if self.response is not None:
            return self.response
        if answer.status != 200:
            raise parse_rejected(answer, self._id)
        if not answer.body and answer.is_stream:
            raise NoResponse("the server's stream ended without the response")
        message = _parse(answer.body)
        if message is None:
            raise NoResponse("the server's answer is not a JSON-RPC message")
        if message.method or not self._is_ours(message):
            raise NoResponse("the server's answer is not to this request")
        return message

    def _take_event(self, data: bytes) -> None:
        message = _parse(data)
        if message is None:
            raise StreamRefused("an event on the server's stream is not a JSON-RPC message")
        if message.method:
            self._inbox.take(message, self._id)
        elif self._is_ours(message):
            self.response = message
        elif self._id:
            raise StreamRefused("the server's stream carries a response to another request")

    def _is_ours(self, message: Incoming) -> bool:
        return _answers(message, self._id)


def retry_after_s(answer: Answer) -> int | None:
    """What `Retry-After` asks for, within bounds. A date counts as nothing: its clock is not ours."""
    value = answer.headers.get(b"retry-after", b"")
    # Longer numbers are over the bound anyway, and int() is not linear.
    return min(int(value[:9]), MAX_RETRY_AFTER_S) if value.isdigit() else None


def parse_rejected(answer: Answer, request_id: bytes = b"") -> Rejected:
    """What an answer with an error status says to the request of that id."""
    message = _parse(answer.body)
    if message is None or message.method or not message.error:
        return Rejected(answer, None, is_ours=False)
    return Rejected(answer, bytes(message.error), is_ours=_answers(message, request_id))


def _answers(message: Incoming, request_id: bytes) -> bool:
    return bool(request_id) and bytes(message.id) == request_id


def _parse(data: bytes | bytearray) -> Incoming | None:
    """A message; None where the bytes are none."""
    try:
        message = decode_incoming(data)
    except UNREADABLE:
        return None
    return message if is_utf8(data) else None
