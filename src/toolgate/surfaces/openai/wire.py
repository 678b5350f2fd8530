"""How the chat door answers: the shapes of the OpenAI API, and the one translation of errors."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.errors import MethodNotAllowed, ModelRefused, ToolgateError
from toolgate.gateway.asking import PATH
from toolgate.surfaces.http.messages import Headers, Responder

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
    return status, _own_words(exc.data["body"]) or _encode({"error": describe_failure(exc, status)})


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


def encode_broken(exc: ToolgateError) -> bytes:
    """How a stream ends that cannot go on: clients raise what stands in it."""
    return encode_chunk(encode_failure(exc)[1]) + DONE


def encode_broken_response(exc: ToolgateError) -> bytes:
    """The same of the Responses API, whose events have names. How many there were is not counted."""
    said = {"code": exc.code, "message": f"{exc}. {exc.hint}", "param": None}
    data = _encode({"type": "error", "sequence_number": 0, **said})
    return b"event: error\ndata: %b\n\n" % data


class Api(NamedTuple):
    """One of the APIs of a model's server: where it is asked, and how a stream of it breaks off."""

    path: str
    encode_broken: Callable[[ToolgateError], bytes]


CHAT: Final = Api(PATH, encode_broken)
RESPONSES: Final = Api("/responses", encode_broken_response)


def _own_words(body: str) -> bytes | None:
    """An answer that has the shape clients look for; None for any other."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body.encode() if isinstance(said, dict) and "error" in said else None
