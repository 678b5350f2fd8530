"""How this surface answers: JSON, the headers every answer carries, and the one translation of errors."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolgate.errors import MethodNotAllowed, ToolgateError
from toolgate.model.servers import EMPTY
from toolgate.surfaces.rest.shapes import Shown

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"
WASM: Final = "application/wasm"

Shape: TypeAlias = type[object] | UnionType
"""Of the body of an answer: one, or several it may be."""
Events: TypeAlias = AsyncGenerator[bytes, None]
"""Server-sent events, each with its end."""


class Stream(NamedTuple):
    """An answer that goes on. It has begun, so whoever sends it closes it in any case."""

    first: bytes
    rest: Events


# `no-store`: an answer is for one caller at one moment, and no cache on the way can tell callers apart.
_HARDENING: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# A proxy that collects an answer before it passes it on would keep events for ever.
_UNBUFFERED: Final[Mapping[str, str]] = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers with: a value or plain data to be encoded, finished bytes, or a stream."""

    body: Mapping[str, Any] | Shown | bytes | Stream
    status: int = 200
    revision: int | None = None
    """Of the record answered with; becomes its ETag."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)


def encode_answer(answer: Answer, media_type: str = JSON) -> Response:
    """The answer as it goes out."""
    if isinstance(answer.body, Stream):
        headers = {**_HARDENING, **_UNBUFFERED, "content-type": media_type, **answer.headers}
        return _StreamResponse(answer.body, headers)
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    etag = {} if answer.revision is None else {"etag": f'"{answer.revision}"'}
    return Response(
        body,
        status_code=answer.status,
        media_type=media_type,
        headers={**_HARDENING, **etag, **answer.headers},
    )


class _StreamResponse(Response):
    """An answer that goes on. Whoever goes away cancels it: the listener sees to that."""

    def __init__(self, stream: Stream, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        async with aclosing(self._stream.rest) as rest:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await send({"type": "http.response.body", "body": self._stream.first, "more_body": True})
                async for event in rest:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def encode_error(exc: ToolgateError, headers: Mapping[str, str] = EMPTY) -> Response:
    """A failure as it goes out."""
    if isinstance(exc, MethodNotAllowed):
        headers = {**headers, "allow": ", ".join(exc.data["allowed"])}
    return encode_answer(Answer({"error": exc.detail}, exc.wire.http, headers=headers))
