"""How this surface answers: JSON, the headers every answer carries, and the one translation of errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.responses import Response

from toolgate.errors import MethodNotAllowed, ToolgateError
from toolgate.model.servers import EMPTY
from toolgate.surfaces.rest.shapes import Shown

JSON: Final = "application/json"

# `no-store`: an answer is for one caller at one moment, and no cache on the way can tell callers apart.
_HARDENING: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers with: a value or plain data to be encoded, or finished bytes."""

    body: Mapping[str, Any] | Shown | bytes
    status: int = 200
    revision: int | None = None
    """Of the record answered with; becomes its ETag."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)


def encode_answer(answer: Answer, media_type: str = JSON) -> Response:
    """The answer as it goes out."""
    body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
    etag = {} if answer.revision is None else {"etag": f'"{answer.revision}"'}
    return Response(
        body,
        status_code=answer.status,
        media_type=media_type,
        headers={**_HARDENING, **etag, **answer.headers},
    )


def encode_error(exc: ToolgateError, headers: Mapping[str, str] = EMPTY) -> Response:
    """The one shape of every REST error."""
    error: dict[str, Any] = {"code": exc.code, "message": str(exc), "hint": exc.hint}
    if exc.data:
        error["data"] = exc.data
    if isinstance(exc, MethodNotAllowed):
        headers = {**headers, "allow": ", ".join(exc.data["allowed"])}
    return encode_answer(Answer({"error": error}, exc.wire.http, headers=headers))
