"""Reads the JSON-RPC in HTTP responses: in a body, on a stream, and in the notification stream of a server.

Also interprets HTTP statuses, `WWW-Authenticate` challenges (RFC 6750, section 3) and broken exchanges. A
challenge is a server's claim: the gateway uses an address in it at that server's own origin only. Its scopes
decide what a person has to approve, never what the gateway requests for itself.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from toolgate.errors import ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LIST_METHODS, MODERN_VERSION
from toolgate.upstream.connection import messages
from toolgate.upstream.connection.contract import MAX_MESSAGE_BYTES, RpcResponse
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.http.client_connection import ExchangeFailed, HttpFailure, HttpResponse
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.fetch import Fetcher, FetchFailed
from toolgate.upstream.http.sse import SseParser, StreamRefused

REPEATABLE: Final = frozenset({*LIST_METHODS.values(), "ping", "server/discover"})
"""Methods without effect at a server, so a request may be sent again."""
_POSITION = re.compile(rb"[\x20-\x7e]{1,1024}")
MAX_RETRY_AFTER_S: Final = 60
"""The gateway sends again after this time, even if the server asks for a longer delay."""


class RequestRejected(Exception):
    """An HTTP error status. `error` is the JSON-RPC error object in its body, if any."""

    def __init__(self, response: HttpResponse, error: bytes | None, *, is_ours: bool) -> None:
        super().__init__(f"the server responded with status {response.status}")
        self.status = response.status
        self.error = error
        self.is_ours = is_ours
        """The error names our request, so it is the response to it whatever the status."""
        self.retry_after_s = parse_retry_after_s(response)
        """The delay that the server requests."""
        self.challenge = response.headers.get(b"www-authenticate", b"")


class ResponseMissing(ExchangeFailed):
    """The HTTP exchange succeeded without the JSON-RPC response."""


@dataclass(slots=True, eq=False)
class PendingResponse:
    """The response that one request waits for. It is the sink of a stream that may carry it."""

    key: bytes
    """The number of the request; empty for a stream that belongs to none."""
    relay: Relay | None
    """Takes the server's other messages; during a negotiation, they concern no request and are dropped."""
    on_open: Callable[[], None] | None = None
    """Called when a stream has opened."""
    response: messages.IncomingMessage | None = None
    """The response, once a stream has carried it."""
    _parser: SseParser | None = None

    @property
    def has_begun(self) -> bool:
        return self._parser is not None

    @property
    def position(self) -> bytes:
        """The event after which a broken stream can be resumed; empty if it cannot."""
        position = self._parser.last_event_id if self._parser is not None else b""
        return position if _POSITION.fullmatch(position) else b""

    @property
    def retry_s(self) -> float:
        """The delay that the server requests before that."""
        return (self._parser.retry_ms or 0) / 1000 if self._parser is not None else 0.0

    def begin(self) -> None:
        if self._parser is None:
            self._parser = SseParser(MAX_MESSAGE_BYTES)
        self._parser.restart()
        if self.on_open is not None:
            self.on_open()

    def feed(self, chunk: bytes) -> bool:
        assert self._parser is not None  # begin() comes first
        for event in self._parser.feed(chunk):
            if event.type == b"message":
                self._receive_event(event.data)
        return self.response is not None

    def deadline(self, deadline: float) -> float:
        return deadline if self.relay is None else self.relay.deadline_of(self.key, deadline)

    def parse(self, response: HttpResponse) -> messages.IncomingMessage:
        """The JSON-RPC response in `response` or on its stream. Raises RequestRejected and ExchangeFailed."""
        if self.response is not None:
            return self.response
        if response.status != 200:
            raise parse_rejected(response, self.key)
        if not response.body and response.is_stream:
            raise ResponseMissing("the server's stream ended without the response")
        message = _parse_message(response.body)
        if message is None:
            raise ResponseMissing("the server's response is not a JSON-RPC message")
        if message.method or not _responds_to(message, self.key):
            raise ResponseMissing("the server's response is to another request")
        return message

    def _receive_event(self, data: bytes) -> None:
        message = _parse_message(data)
        if message is None:
            raise StreamRefused("an event on the server's stream is not a JSON-RPC message")
        if message.method:
            if self.relay is not None:
                self.relay.receive(message, self.key)
        elif _responds_to(message, self.key):
            self.response = message
        elif self.key:
            raise StreamRefused("the server's stream carries a response to another request")


def parse_retry_after_s(response: HttpResponse) -> int | None:
    """The delay in `Retry-After`, bounded. A date is ignored: the server's clock may be wrong."""
    value = response.headers.get(b"retry-after", b"")
    # Longer numbers are over the bound anyway, and int() is not linear.
    return min(int(value[:9]), MAX_RETRY_AFTER_S) if value.isdigit() else None


def parse_rejected(response: HttpResponse, request_id: bytes = b"") -> RequestRejected:
    """The rejection of the request with this id."""
    message = _parse_message(response.body)
    if message is None or message.method or not message.error:
        return RequestRejected(response, None, is_ours=False)
    return RequestRejected(response, bytes(message.error), is_ours=_responds_to(message, request_id))


def _responds_to(message: messages.IncomingMessage, request_id: bytes) -> bool:
    return bool(request_id) and bytes(message.id) == request_id


def _parse_message(data: bytes | bytearray) -> messages.IncomingMessage | None:
    try:
        message = messages.decode_incoming(data)
    except UNREADABLE:
        return None
    return message if messages.is_utf8(data) else None


MIN_DELAY_S: Final = 0.5  # a choice: a server that ends each stream at once costs two requests a second
_MAX_DELAY_S: Final = 30.0  # as long as the longest wait before a restart (`PoolLimits.backoff_max_s`)
_MAX_FAILURES: Final = 8
"""The stream is given up after this many failures in a row, which takes about two minutes."""
_LASTING_S: Final = 5.0
"""A stream that ends sooner was hardly worth opening; the next attempt waits longer."""


@dataclass(slots=True, eq=False)
class NotificationStream:
    """A server's stream for notifications outside of requests (`list_changed`), reopened when it ends.

    It is a convenience, because lists are read again after a while anyway. So it never ends a connection,
    stops if the server does not offer it, and never reconnects faster than `MIN_DELAY_S`, whatever `retry`
    the server sends.
    """

    pool: HttpPool
    relay: Relay
    build_request: Callable[[bytes], tuple[bytes, bytes]]
    """Takes a position and returns the number, if any, and the bytes of a request."""
    on_missed: Callable[[], None]
    """Called when the stream has opened again, because notifications in between are lost."""
    on_open: Callable[[], None] | None = None
    """Called whenever the stream has opened."""
    _position: bytes = b""
    _delay_s: float = MIN_DELAY_S
    _failures: int = 0
    _has_opened: bool = False
    _retry_after_s: int = 0

    async def run(self) -> None:
        """Follow the stream until the server ends it for good, or the caller cancels."""
        clock = asyncio.get_running_loop().time
        while self._failures < _MAX_FAILURES:
            self._retry_after_s = 0
            key, request = self.build_request(self._position)
            stream = PendingResponse(key, self.relay, self._handle_open)
            began_s = clock()
            if await self._follow(stream, request):
                return
            await asyncio.sleep(self._next_delay_s(stream, clock() - began_s))

    async def _follow(self, stream: PendingResponse, request: bytes) -> bool:
        """Follow one stream to its end. Returns whether another would be pointless."""
        try:
            response = await self.pool.send(request, deadline=None, sink=stream)
        except HttpFailure:
            return False
        is_refused = stream.response is not None and bool(stream.response.error)
        self._retry_after_s = parse_retry_after_s(response) or 0
        return is_refused or not (response.is_stream or response.status == 429 or response.status >= 500)

    def _handle_open(self) -> None:
        if self.on_open is not None:
            self.on_open()
        if self._has_opened:
            self.on_missed()
        self._has_opened = True

    def _next_delay_s(self, stream: PendingResponse, lived_s: float) -> float:
        """Doubles each time; starts from the beginning after a stream that lasted."""
        self._position = stream.position
        self._failures = 0 if stream.has_begun else self._failures + 1
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, _MAX_DELAY_S)
        if stream.has_begun and lived_s > _LASTING_S:
            delay_s, self._delay_s = MIN_DELAY_S, MIN_DELAY_S * 2
        return min(max(delay_s, stream.retry_s, self._retry_after_s), _MAX_DELAY_S)


MAX_SCOPES: Final = 64  # a choice: a person reads them before agreeing
_MAX_CHALLENGE_CHARS: Final = 8_192  # a choice: an eighth of the longest response head
_PARAMETER = re.compile(r'([A-Za-z_]{1,40})="((?:[^"\\]|\\.)*)"')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
_PROBE_HEADERS: Final = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerChallenge:
    """The parts of a challenge that the gateway uses."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


NO_CHALLENGE: Final = BearerChallenge()


def parse_challenge(header: str) -> BearerChallenge:
    """The challenge in a `WWW-Authenticate` header; empty for any other scheme than Bearer."""
    if header[:7].lower() != "bearer " or len(header) > _MAX_CHALLENGE_CHARS:
        return NO_CHALLENGE
    found = {name.lower(): value for name, value in _PARAMETER.findall(header)}
    return BearerChallenge(
        error=found.get("error", ""),
        scopes=parse_scopes(found.get("scope", "").split(" ")),
        resource_metadata=found.get("resource_metadata"),
    )


def parse_scopes(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The valid scopes, without duplicates, at most MAX_SCOPES."""
    return tuple(dict.fromkeys(word for word in words if _SCOPE.fullmatch(word)))[:MAX_SCOPES]


async def provoke_challenge(fetcher: Fetcher, url: str) -> BearerChallenge:
    """The challenge of the server at `url` to a request without a token that changes nothing."""
    try:
        request = messages.encode_request(1, "server/discover", {})
        response = await fetcher.post_json(url, request, _PROBE_HEADERS)
    except FetchFailed:
        return NO_CHALLENGE
    if response.status != 401:
        return NO_CHALLENGE
    return parse_challenge(response.headers.get(b"www-authenticate", b"").decode("latin-1"))


_UNKNOWN_OUTCOME: Final = "the server may have executed the call: check before you repeat it"
_HINTS: Final = {
    401: "set a valid `auth_ref`, `headers` or `oauth` in the server's record",
    403: "set an `auth_ref`, `headers` or `oauth.scopes` that allow this in the server's record",
    429: "the server limits the rate of calls: retry later, or lower its `budgets.max_concurrency`",
}
_PHRASES: Final = {status.value: status.phrase.lower() for status in HTTPStatus}
_REDIRECT: Final = "a redirect, which the gateway does not follow"
_MAX_QUOTED: Final = 200  # characters of a server's message: one or two sentences within an error


def convert_rejection(rejected: RequestRejected, redactor: messages.Redactor) -> RpcResponse:
    """The response in an error status if it responds to our request; else raises ServerUnavailable."""
    if rejected.error is not None and rejected.is_ours:
        return redactor.mask_response(RpcResponse(error=rejected.error))
    status = rejected.status
    message = messages.parse_error(rejected.error).message
    quoted = f": {redactor.text(message)[:_MAX_QUOTED]}" if message else ""
    data: dict[str, object] = {"status": status}
    if rejected.retry_after_s is not None:
        data["retry_after_s"] = rejected.retry_after_s
    if status == 403:
        challenge = parse_challenge(rejected.challenge.decode("latin-1"))
        if challenge.error == "insufficient_scope" and challenge.scopes:
            data["scopes"] = list(challenge.scopes)
    phrase = _REDIRECT if 300 <= status < 400 else _PHRASES.get(status, "unknown")
    reason = f"the server responded with status {status} ({phrase}){quoted}"
    raise ServerUnavailable(reason, hint=_HINTS.get(status), data=data) from rejected


def build_unknown_outcome(reason: str) -> ServerUnavailable:
    """The error of a call that was sent without a response."""
    return ServerUnavailable(f"{reason}: unknown outcome", hint=_UNKNOWN_OUTCOME, data={"outcome": "unknown"})
