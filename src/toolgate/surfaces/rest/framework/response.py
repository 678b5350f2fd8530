"""REST responses: what handlers return, the shapes of bodies, and how they are sent.

Request bodies are pydantic models, which validate input. Response bodies are msgspec structs, or values of
other packages that are shown as they are; the OpenAPI document takes names, types and descriptions from them.
Every response has the same security headers, and
every error the same shape.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import MISSING, dataclass, field, make_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self, TypeAlias, get_type_hints

import msgspec
from msgspec.structs import fields
from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from toolgate.errors import ToolgateError
from toolgate.model.servers import EMPTY
from toolgate.registry.records.body import read_field_texts
from toolgate.surfaces.http.messages import Responder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Revision = Annotated[int, Field(ge=0)]
NextCursor = Annotated[
    str | None, Field(description="The `cursor` of the next page. Null: this is the last page.")
]
DESCRIBED: Final = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""How pydantic makes schemas of responses, and of the values in them."""


class ResponseShape(msgspec.Struct, frozen=True):
    """The base of response bodies. A struct, because dataclasses cost a tenth of each start."""

    @classmethod
    def of(cls, *sources: object, **members: Any) -> Self:
        """Build the shape from `members`; each other member comes from the first source that has it.

        Values are converted to the types of the shape: sequences to lists, records to shapes.
        """
        for name in cls.__struct_fields__:
            if name not in members:
                members[name] = getattr(next(one for one in sources if hasattr(one, name)), name)
        return msgspec.convert(
            {name: _name_members(value) for name, value in members.items()}, cls, from_attributes=True
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_as_dataclass(cls))


@cache
def _as_dataclass(shape: type[ResponseShape]) -> type[object]:
    """`shape` as a dataclass with the same name and described fields: pydantic makes schemas of those."""
    hints = get_type_hints(shape, include_extras=True)
    for name, text in read_field_texts(shape).items():
        hints[name] = Annotated[hints[name], Field(description=text)]
    members: list[Any] = [
        (one.name, hints[one.name], field(default=MISSING if one.required else one.default))
        for one in fields(shape)
    ]
    namespace = {"__doc__": shape.__doc__, "__pydantic_config__": DESCRIBED}
    return make_dataclass(shape.__name__, members, kw_only=True, namespace=namespace)


def _name_members(value: Any) -> Any:
    """`value` with dicts for named tuples, which msgspec would encode as arrays."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _name_members(member) for name, member in value._asdict().items()}
    return [_name_members(one) for one in value] if isinstance(value, tuple | list) else value


class ErrorDetail(ResponseShape, frozen=True, kw_only=True):
    """An error."""

    code: str
    """A stable code, for programs."""
    message: str
    """What failed."""
    hint: str
    """What to do about it."""
    data: dict[str, Any] | None = None
    """Details, for some codes."""


class ErrorResponse(ResponseShape, frozen=True, kw_only=True):
    """The body of every error response."""

    error: ErrorDetail


JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

Shape: TypeAlias = type[object] | UnionType
"""The shape of a response body, or a union of its possible shapes."""
Events: TypeAlias = AsyncGenerator[bytes, None]
"""Server-sent events, each with its terminator."""


class ResponseStream(NamedTuple):
    """A body in parts. It has started, so the sender must always close it."""

    first: bytes
    rest: Events


# `no-store`: a response is for one caller, and no cache on the way can tell callers apart.
_HARDENING: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# A proxy that buffers a response would never pass events on.
_UNBUFFERED: Final[Mapping[str, str]] = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


ResponseBody: TypeAlias = "Mapping[str, Any] | msgspec.Struct | DataclassInstance | bytes | ResponseStream"
"""A value to encode, encoded bytes, or a stream."""


@dataclass(frozen=True, slots=True)
class RestResponse:
    """A body with its status and headers. A handler that needs neither returns the body alone."""

    body: ResponseBody
    status: int = 200
    revision: int | None = None
    """The revision of the returned record, sent as its ETag."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)


async def send_response(responder: Responder, response: RestResponse, *, is_head: bool = False) -> None:
    """Send `response`, or the headers of a stream for a HEAD request."""
    body = response.body
    if isinstance(body, ResponseStream):
        async with aclosing(body.rest) as rest:
            responder.start(
                response.status, _encode_headers({**_HARDENING, **_UNBUFFERED, **response.headers})
            )
            if not is_head:
                await responder.write(body.first)
                async for event in rest:
                    await responder.write(event)
        responder.end()
        return
    etag = {} if response.revision is None else {"etag": f'"{response.revision}"'}
    headers = _encode_headers({**_HARDENING, **etag, **response.headers})
    responder.send(response.status, body if isinstance(body, bytes) else msgspec.json.encode(body), headers)


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def error_response(exc: ToolgateError, headers: Mapping[str, str] = EMPTY) -> RestResponse:
    """The response for a failure."""
    return RestResponse({"error": exc.detail}, exc.wire.http, headers=headers)
