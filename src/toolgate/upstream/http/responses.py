"""The JSON-RPC in an HTTP answer: the response to one request of ours, in a body or on a stream.

What a server says when it refuses a request for want of a token, or of a scope (RFC 6750, section 3).

It is a server's word: an address in it is used at that server's own origin only, and scopes decide what
somebody is asked to agree to, never what the gateway asks for as itself.

What HTTP statuses and broken exchanges mean for a call, in the gateway's words.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from toolgate.errors import ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LIST_METHODS, MODERN_VERSION
from toolgate.upstream.connection.contract import MAX_MESSAGE_BYTES, RpcResponse
from toolgate.upstream.connection.messages import (
    IncomingMessage,
    decode_incoming,
    encode_request,
    is_utf8,
    parse_error,
)
from toolgate.upstream.http.client_connection import ExchangeFailed, HttpResponse, StreamRefused
from toolgate.upstream.http.endpoint import is_resumable_id
from toolgate.upstream.http.fetch import Fetcher, FetchFailed
from toolgate.upstream.http.sse import EventTooLarge, SseParser
from toolgate.upstream.redaction import Redactor

REPEATABLE: Final = frozenset({*LIST_METHODS.values(), "ping", "server/discover"})
"""Requests that do nothing at a server, and so may be sent again."""
MAX_RETRY_AFTER_S: Final = 60
"""A server that asks to be left alone for longer is asked again all the same."""


class MessageReceiver(Protocol):
    """Whom a server's messages on a stream concern beside the response. A `Relay` is one."""

    def take(self, message: IncomingMessage, request: bytes, /) -> None:
        """A notification, or a request of the server's own, on the stream of our `request`."""

    def deadline_of(self, request: bytes, deadline: float, /) -> float:
        """When the time of `request` is up, which was to be at `deadline`."""


class RequestRejected(Exception):
    """An HTTP status that is no success. `error` is the JSON-RPC error object in its body, if any."""

    def __init__(self, answer: HttpResponse, error: bytes | None, *, is_ours: bool) -> None:
        super().__init__(f"the server answered {answer.status}")
        self.status = answer.status
        self.error = error
        self.is_ours = is_ours
        """The error names our request, so it is the answer to it whatever the status."""
        self.retry_after_s = retry_after_s(answer)
        """How long the server asks to be left alone."""
        self.challenge = answer.headers.get(b"www-authenticate", b"")
        """What it says it wants to be shown."""


class ResponseMissing(ExchangeFailed):
    """The exchange ended well as HTTP, and did not bring the response."""


class PendingResponse:
    """The response one request waits for. It is the sink of a stream that may carry it."""

    __slots__ = ("_id", "_inbox", "_parser", "response")

    def __init__(self, key: bytes, inbox: MessageReceiver) -> None:
        """`key` is the number of the request; empty for a stream that belongs to none."""
        self._id = key
        self._inbox = inbox
        self._parser: SseParser | None = None
        self.response: IncomingMessage | None = None
        """The response, once a stream has carried it."""

    @property
    def position(self) -> bytes:
        """The event after which a broken stream can be resumed; empty when it cannot."""
        position = self._parser.last_event_id if self._parser is not None else b""
        return position if is_resumable_id(position) else b""

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

    def take(self, answer: HttpResponse) -> IncomingMessage:
        """The response in `answer`, or that came on its stream. Raises Rejected and ExchangeFailed."""
        if self.response is not None:
            return self.response
        if answer.status != 200:
            raise parse_rejected(answer, self._id)
        if not answer.body and answer.is_stream:
            raise ResponseMissing("the server's stream ended without the response")
        message = _parse(answer.body)
        if message is None:
            raise ResponseMissing("the server's answer is not a JSON-RPC message")
        if message.method or not self._is_ours(message):
            raise ResponseMissing("the server's answer is not to this request")
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

    def _is_ours(self, message: IncomingMessage) -> bool:
        return _answers(message, self._id)


def retry_after_s(answer: HttpResponse) -> int | None:
    """What `Retry-After` asks for, within bounds. A date counts as nothing: its clock is not ours."""
    value = answer.headers.get(b"retry-after", b"")
    # Longer numbers are over the bound anyway, and int() is not linear.
    return min(int(value[:9]), MAX_RETRY_AFTER_S) if value.isdigit() else None


def parse_rejected(answer: HttpResponse, request_id: bytes = b"") -> RequestRejected:
    """What an answer with an error status says to the request of that id."""
    message = _parse(answer.body)
    if message is None or message.method or not message.error:
        return RequestRejected(answer, None, is_ours=False)
    return RequestRejected(answer, bytes(message.error), is_ours=_answers(message, request_id))


def _answers(message: IncomingMessage, request_id: bytes) -> bool:
    return bool(request_id) and bytes(message.id) == request_id


def _parse(data: bytes | bytearray) -> IncomingMessage | None:
    """A message; None where the bytes are none."""
    try:
        message = decode_incoming(data)
    except UNREADABLE:
        return None
    return message if is_utf8(data) else None


MAX_SCOPES: Final = 64
_MAX_CHARS: Final = 8_192
_PARAMETER = re.compile(r'([A-Za-z_]{1,40})="((?:[^"\\]|\\.)*)"')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerChallenge:
    """The parts of it that somebody here goes by."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


NO_CHALLENGE: Final = BearerChallenge()


def parse_challenge(header: str) -> BearerChallenge:
    """Of a `WWW-Authenticate` header; what is no part of a challenge for bearers is passed over."""
    if header[:7].lower() != "bearer " or len(header) > _MAX_CHARS:
        return NO_CHALLENGE
    found = {name.lower(): value for name, value in _PARAMETER.findall(header)}
    return BearerChallenge(
        error=found.get("error", ""),
        scopes=parse_scopes(found.get("scope", "").split(" ")),
        resource_metadata=found.get("resource_metadata"),
    )


def parse_scopes(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Those that can be asked for, each once and not too many."""
    return tuple(dict.fromkeys(word for word in words if _SCOPE.fullmatch(word)))[:MAX_SCOPES]


async def provoke_challenge(fetcher: Fetcher, url: str) -> BearerChallenge:
    """What the server at `url` says to who comes without a token, with a question that changes nothing."""
    try:
        answer = await fetcher.post_json(url, encode_request(1, "server/discover", {}), _PROBE)
    except FetchFailed:
        return NO_CHALLENGE
    if answer.status != 401:
        return NO_CHALLENGE
    return parse_challenge(answer.headers.get(b"www-authenticate", b"").decode("latin-1"))


_PROBE: Final = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}


_UNKNOWN_OUTCOME: Final = "the server may have acted on the call: see whether it did before you repeat it"
_HINTS: Final = {
    401: "give the server's record a valid `auth_ref`, `headers` or `oauth`",
    403: "give the server's record an `auth_ref`, `headers` or `oauth.scopes` that may do this",
    429: "the server asks to slow down: retry later, or lower its `budgets.max_concurrency`",
}
_MAX_QUOTED: Final = 200


def convert_rejection(rejected: RequestRejected, redactor: Redactor) -> RpcResponse:
    """An error status is the answer only if its body answers our request; else the server failed."""
    if rejected.error is not None and rejected.is_ours:
        return redactor.reply(RpcResponse(error=rejected.error))
    status = rejected.status
    message = parse_error(rejected.error).message
    said = f": {redactor.text(message)[:_MAX_QUOTED]}" if message else ""
    raise ServerUnavailable(
        f"the server answered with status {status} ({_phrase(status)}){said}",
        hint=_HINTS.get(status),
        data={"status": status, **_details(rejected)},
    ) from rejected


def _details(rejected: RequestRejected) -> dict[str, object]:
    """What somebody can act on."""
    details: dict[str, object] = {}
    if rejected.retry_after_s is not None:
        details["retry_after_s"] = rejected.retry_after_s
    if rejected.status == 403:
        challenge = parse_challenge(rejected.challenge.decode("latin-1"))
        if challenge.error == "insufficient_scope" and challenge.scopes:
            details["scopes"] = list(challenge.scopes)
    return details


def unknown_outcome(error: ExchangeFailed) -> ServerUnavailable:
    """The call was sent, and nobody knows what came of it."""
    return ServerUnavailable(f"{error}: unknown outcome", hint=_UNKNOWN_OUTCOME, data={"outcome": "unknown"})


def _phrase(status: int) -> str:
    if 300 <= status < 400:
        return "a redirect, which is not followed"
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "unknown"
