"""What all shapes have in common, and those that belong to no part in particular.

Requests are pydantic models, as strict as the registry's, for there bytes come in. Answers are plain values,
from which the document takes names, types and descriptions.

How this surface answers: JSON, the headers every answer carries, and the one translation of errors.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import fields
from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolgate.errors import MethodNotAllowed, ToolgateError
from toolgate.model.reports import HealthState
from toolgate.model.servers import EMPTY
from toolgate.registry.records.server_bodies import StrictBody

Revision = Annotated[int, Field(ge=0)]


class ResponseShape(msgspec.Struct, frozen=True):
    """What all answers have in common. Not dataclasses: to make those took a tenth of each start."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_as_dataclass(cls))


@cache
def _as_dataclass(shape: type[ResponseShape]) -> type[object]:
    """`shape` as a dataclass at the same place: of those, what makes the document knows the fields."""
    copied = ("__annotations__", "__doc__", "__firstlineno__", "__module__", "__qualname__")
    members = {name: value for name, value in vars(shape).items() if name in copied}
    own = [one for one in fields(shape) if one.name in members.get("__annotations__", ())]
    members |= {one.name: field(default=one.default) for one in own if one.default is not NODEFAULT}
    members |= {
        one.name: field(default_factory=one.default_factory)
        for one in own
        if one.default_factory is not NODEFAULT
    }
    members["__pydantic_config__"] = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    parents = tuple(_as_dataclass(one) for one in shape.__bases__ if one is not ResponseShape)
    return dataclass(kw_only=True)(type(shape.__name__, parents, members))


class ErrorDetail(ResponseShape, frozen=True, kw_only=True):
    """A failure. Programs act on the code, people on the rest."""

    code: str
    """Stable."""
    message: str
    """What happened."""
    hint: str
    """What to do next."""
    data: dict[str, Any] | None = None
    """More about it, where there is more."""


class ErrorAnswer(ResponseShape, frozen=True, kw_only=True):
    """The one shape of every error."""

    error: ErrorDetail


class MetadataAnswer(ResponseShape, frozen=True, kw_only=True):
    """Where tokens come from (RFC 9728)."""

    resource: str
    """What the metadata is of; tokens are for it."""
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


class ReasonGiven(ResponseShape, frozen=True, kw_only=True):
    """Why something is not as it should be."""

    code: str
    """One of the error codes, or `audit_unwritable`."""
    hint: str
    """What to do."""


class HealthAnswer(ResponseShape, frozen=True, kw_only=True):
    """Whether the gateway serves, and what."""

    status: Literal["ok", "degraded"]
    """`degraded`: it goes on as far as it can. `/readyz` says whether calls can be sent to it."""
    reasons: list[ReasonGiven]
    """Why it is degraded."""
    version: str
    revision: Revision
    """The registry revision served."""
    uptime_s: float
    servers: dict[HealthState, int] | None = None
    """How many servers are in each state that any is in: for the role `viewer` and above."""


class ReadyAnswer(ResponseShape, frozen=True, kw_only=True):
    """Whether the gateway answers every caller as its policy says."""

    status: Literal["ready", "not_ready"]
    reasons: list[ReasonGiven]
    """Why it is not."""
    revision: Revision


class NoBody(StrictBody):
    """Nothing, or an empty object."""


JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"
WASM: Final = "application/wasm"

Shape: TypeAlias = type[object] | UnionType
"""Of the body of an answer: one, or several it may be."""
Events: TypeAlias = AsyncGenerator[bytes, None]
"""Server-sent events, each with its end."""


class ResponseStream(NamedTuple):
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
class RestResponse:
    """What a handler answers with: a value or plain data to be encoded, finished bytes, or a stream."""

    body: Mapping[str, Any] | ResponseShape | bytes | ResponseStream
    status: int = 200
    revision: int | None = None
    """Of the record answered with; becomes its ETag."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)


def encode_response(answer: RestResponse, media_type: str = JSON) -> Response:
    """The answer as it goes out."""
    if isinstance(answer.body, ResponseStream):
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

    def __init__(self, stream: ResponseStream, headers: Mapping[str, str]) -> None:
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
    return encode_response(RestResponse({"error": exc.detail}, exc.wire.http, headers=headers))
