"""How the chat door answers: the shapes of the OpenAI API, and the one translation of errors.

An answer as a stream of events, as far as it is bytes.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import MethodNotAllowed, ModelRefused, ToolgateError
from toolgate.gateway.chat.session import COMPLETIONS_PATH
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
    """A failure as a client of the OpenAI API takes it: the status, and the body.

    What a model's server said itself passes with its status, as it came. Only that it does not know the
    gateway's credential does not: to the caller that would be about its own.
    """
    if not isinstance(exc, ModelRefused):
        return exc.wire.http, _encode({"error": describe_failure(exc, exc.wire.http)})
    status = int(exc.data["status"])
    if status == _UNAUTHENTICATED:
        status, exc = (
            exc.wire.http,
            ModelRefused("the model's server does not accept this gateway's credential"),
        )
        return status, _encode({"error": describe_failure(exc, status)})
    return status, _parse_own_error(exc.data["body"]) or _encode({"error": describe_failure(exc, status)})


def describe_failure(exc: ToolgateError, status: int) -> dict[str, Any]:
    """The members of `error`. The hint goes along with the message: clients show nothing else."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = f"{str(exc).removesuffix('.')}. {exc.hint}" if exc.hint else str(exc)
    return {"message": message, "type": kind, "param": exc.data.get("param"), "code": exc.code}


def send_failure(responder: Responder, exc: ToolgateError, headers: Headers = ()) -> None:
    """A failure as the whole answer."""
    status, body = encode_failure(exc)
    more = []
    if isinstance(exc, MethodNotAllowed):
        more.append((b"allow", ", ".join(exc.data["allowed"]).encode()))
    if isinstance(exc, ModelRefused) and "retry_after" in exc.data:
        more.append((b"retry-after", b"%d" % ceil(exc.data["retry_after"])))
    responder.send(status, body, [*headers, *more])


def encode_chunk(data: bytes) -> bytes:
    """One JSON value as an event, as clients of this API expect them: without a name."""
    return b"data: %b\n\n" % data.translate(_LINE_ENDS)


def encode_stream_failure(exc: ToolgateError) -> bytes:
    """How a stream ends that cannot go on: clients raise what stands in it."""
    return encode_chunk(encode_failure(exc)[1]) + DONE


def encode_response_failure(exc: ToolgateError) -> bytes:
    """The same of the Responses API, whose events have names. How many there were is not counted."""
    said = {"code": exc.code, "message": f"{exc}. {exc.hint}", "param": None}
    data = _encode({"type": "error", "sequence_number": 0, **said})
    return b"event: error\ndata: %b\n\n" % data


class ModelApi(NamedTuple):
    """One of the APIs of a model's server: where it is asked, and how a stream of it breaks off."""

    path: str
    encode_broken: Callable[[ToolgateError], bytes]


CHAT: Final = ModelApi(COMPLETIONS_PATH, encode_stream_failure)
RESPONSES: Final = ModelApi("/responses", encode_response_failure)


def _parse_own_error(body: str) -> bytes | None:
    """An answer that has the shape clients look for; None for any other."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body.encode() if isinstance(said, dict) and "error" in said else None


class ChatEventStream:
    """Begins with the first bytes: what fails before that has a status of its own."""

    def __init__(self, exchange: ChatExchange) -> None:
        self._responder = exchange.responder
        self._headers = [*EVENT_HEADERS, exchange.request_id_header]
        self._is_busy = False
        self.has_begun = False
        """Something was sent: an error has no status of its own any more."""

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

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """While the block runs, nobody on the way takes silence for the end."""
        keeping = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            yield
        finally:
            keeping.cancel()  # it is between two words, or in one that nobody waits for

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEPALIVE_S)
            if not self._is_busy:  # a client that is slow to read has enough to read
                await self.put(KEEPALIVE)
