"""The wire format of the chat endpoint: errors in the shape of the OpenAI API, and event streams.

The one place that converts a ToolgateError for clients of this API.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import MethodNotAllowed, ModelRefused, ToolgateError
from toolgate.gateway.chat.completions import COMPLETIONS_PATH
from toolgate.surfaces.http.messages import Headers, Responder
from toolgate.surfaces.http.responder import EVENT_HEADERS, KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.openai.context import ChatExchange

DONE: Final = b"data: [DONE]\n\n"
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_UNAUTHENTICATED: Final = 401
_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
_encode = msgspec.json.encode


def encode_failure(exc: ToolgateError) -> tuple[int, bytes]:
    """Encode an error for a client of the OpenAI API: the status, and the body.

    An error of the model's server passes with its status, as it came. Its 401 does not: it is about the
    gateway's credential, and the client would take it for its own.
    """
    status = exc.wire.http
    if isinstance(exc, ModelRefused):
        if exc.data["status"] != _UNAUTHENTICATED:
            status = int(exc.data["status"])
            return status, _find_error(exc.data["body"]) or _encode({"error": describe_failure(exc, status)})
        exc = ModelRefused("the model's server does not accept this gateway's credential")
    return status, _encode({"error": describe_failure(exc, status)})


def describe_failure(exc: ToolgateError, status: int) -> dict[str, Any]:
    """Build the members of `error`. The message includes the hint: clients show nothing else."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = f"{str(exc).removesuffix('.')}. {exc.hint}" if exc.hint else str(exc)
    return {"message": message, "type": kind, "param": exc.data.get("param"), "code": exc.code}


def send_failure(responder: Responder, exc: ToolgateError, headers: Headers = ()) -> None:
    """Send an error as the whole response."""
    status, body = encode_failure(exc)
    more = []
    if isinstance(exc, MethodNotAllowed):
        more.append((b"allow", ", ".join(exc.data["allowed"]).encode()))
    if isinstance(exc, ModelRefused) and "retry_after" in exc.data:
        more.append((b"retry-after", b"%d" % ceil(exc.data["retry_after"])))
    responder.send(status, body, [*headers, *more])


def encode_chunk(data: bytes) -> bytes:
    """Encode one JSON value as an event. Clients of this API expect no event name."""
    return b"data: %b\n\n" % data.translate(_LINE_ENDS)


def encode_stream_failure(exc: ToolgateError) -> bytes:
    """Encode the end of a stream that fails: clients raise this error."""
    return encode_chunk(encode_failure(exc)[1]) + DONE


def encode_response_failure(exc: ToolgateError) -> bytes:
    """The same for the Responses API, whose events have names. Forwarded events are not counted."""
    error = {"code": exc.code, "message": f"{exc}. {exc.hint}", "param": None}
    data = _encode({"type": "error", "sequence_number": 0, **error})
    return b"event: error\ndata: %b\n\n" % data


class ModelApi(NamedTuple):
    """One API of a model's server: its path, and how a stream of it fails."""

    path: str
    encode_broken: Callable[[ToolgateError], bytes]


CHAT: Final = ModelApi(COMPLETIONS_PATH, encode_stream_failure)
RESPONSES: Final = ModelApi("/responses", encode_response_failure)


def _find_error(body: str) -> bytes | None:
    """A body of the shape that clients look for; None for any other."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body.encode() if isinstance(parsed, dict) and "error" in parsed else None


class ChatEventStream:
    """A response as an event stream.

    It begins with the first bytes: an error before that has its own status.
    """

    def __init__(self, exchange: ChatExchange) -> None:
        self._responder = exchange.responder
        self._headers = [*EVENT_HEADERS, (b"x-request-id", exchange.request_id.encode())]
        self._is_writing = False
        self.has_begun = False
        """The status is sent: an error can only break off the stream."""

    async def put(self, data: bytes) -> None:
        """Returns when the client has read most of it."""
        if not data:
            return
        if not self.has_begun:
            self.has_begun = True
            self._responder.start(200, self._headers)
        self._is_writing = True
        try:
            await self._responder.write(data)
        finally:
            self._is_writing = False

    def end(self) -> None:
        self._responder.end()

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """While the block runs, send comments during silence, so that no proxy closes the connection."""
        task = asyncio.get_running_loop().create_task(self._send_keepalives())
        try:
            yield
        finally:
            task.cancel()  # between two comments, or in one that does not matter

    async def _send_keepalives(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            if not self._is_writing:  # a client that reads slowly has data on the way
                await self.put(KEEPALIVE)
