"""The OpenAPI document, made from the route table and the models. Nothing in it is written twice."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from types import UnionType
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from toolgate import __version__
from toolgate.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidRecord,
    InvalidRequest,
    IssuerUnavailable,
    ParseFailed,
    RevisionNotReached,
    StorageUnavailable,
    ToolgateError,
    TooManyAttempts,
    Unauthenticated,
    UnsupportedMedia,
)
from toolgate.errors.wires import WIRE
from toolgate.surfaces.rest.framework.request import FORM, BodySpec, Parameter
from toolgate.surfaces.rest.framework.response import JSON, ErrorAnswer, Shape
from toolgate.surfaces.rest.framework.routing import ANYONE, MIN_REVISION, RestEndpoint

Json = dict[str, Any]

_DESCRIPTION: Final = (
    "Governs a Toolgate gateway and tells what it serves. Every error has one shape, and its code is stable."
    " On loopback, where the gateway trusts it, a request without a key is the local administrator's."
)
_REF: Final = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
# One mode for all: members of a record that have a default may be left out both ways.
_MODE: Final[JsonSchemaMode] = "validation"


_FORMS: Final[dict[str, Json]] = {
    "text": {"type": "string"},
    "flag": {"type": "boolean", "default": False},
    "choice": {"type": "boolean"},
    "number": {"type": "integer", "minimum": 0},
}
_PATH_WORDS: Final = {
    "version": "Of the package.",
    "sha256": "Of the whole archive, in lower-case hexadecimal.",
    "part": "Its number, from 1.",
    "category": "The `id` of the category, percent-encoded.",
    "namespace": "The part before the slash in the server's name.",
    "server_name": "The part after it.",
    "server_version": "Of the server, or `latest`.",
}
"""Path parameters that are not ids."""
_MIN_REVISION: Final = Parameter(
    MIN_REVISION,
    "Of the registry, as another answer gave it: wait until it is served here, or be told that it is not.",
    form="number",
)


def describe_api(endpoints: Sequence[RestEndpoint[Any]]) -> Json:
    """The document of `endpoints`."""
    paths: dict[str, Json] = defaultdict(dict)
    for endpoint in endpoints:
        paths[endpoint.path][endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolgate",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(paths),
        "components": {
            "schemas": _schemas(endpoints),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A gateway's key."}
            },
        },
    }


def list_errors(endpoint: RestEndpoint[Any]) -> Iterator[type[ToolgateError]]:
    """Every error the endpoint may answer with: those of the checks before its handler, then its own."""
    yield from (Unauthenticated, TooManyAttempts, IssuerUnavailable)
    yield InvalidRequest
    if endpoint.role is not ANYONE:
        yield from (Forbidden, StorageUnavailable)
    if _PATH_PARAMETER.search(endpoint.path):
        yield InvalidRecord
    if endpoint.method == "GET":
        yield RevisionNotReached
    if endpoint.body is not None:
        yield from (UnsupportedMedia, BodyTooLarge)
        if endpoint.body.model is not None:
            yield ParseFailed
    yield from endpoint.errors
    yield ToolgateError


def _operation(endpoint: RestEndpoint[Any]) -> Json:
    operation: Json = {
        "operationId": re.sub(r"[^a-z]+", "-", endpoint.summary.lower()),
        "summary": endpoint.summary,
        "description": f"{inspect.getdoc(endpoint.handler)}\n\n{_describe_role(endpoint)}",
        "security": [] if endpoint.role is ANYONE else [{"key": []}],
        "parameters": list(_parameters(endpoint)),
        "responses": {**_success_responses(endpoint), **_error_responses(endpoint)},
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body.may_be_empty,
            "content": {endpoint.body.media_type: _content(endpoint.body.model), **_form(endpoint.body)},
        }
    return operation


def _content(model: type[BaseModel] | None) -> Json:
    """What a body holds. Of bytes there is nothing to say."""
    return {} if model is None else {"schema": _ref(model)}


def _form(body: BodySpec[Any]) -> Json:
    """The same body as a form: see the description of the endpoint."""
    return {} if body.parse_form_fields is None else {FORM: {"schema": {"type": "object"}}}


def _describe_role(endpoint: RestEndpoint[Any]) -> str:
    return "For anyone." if endpoint.role is ANYONE else f"For the role `{endpoint.role}` and those above it."


def _parameters(endpoint: RestEndpoint[Any]) -> Iterator[Json]:
    for name in _PATH_PARAMETER.findall(endpoint.path):
        description = _PATH_WORDS.get(name, f"The id of the {name.removesuffix('_id')}.")
        yield _parameter("path", name, description, {"type": "string", "minLength": 1}) | {"required": True}
    for one in endpoint.query:
        yield _parameter("query", one.name, one.description, _FORMS[one.form])
    for one in (*endpoint.headers, *((_MIN_REVISION,) if endpoint.method == "GET" else ())):
        yield _parameter("header", one.name, one.description, _FORMS[one.form])
    if endpoint.is_conditional:
        etag = "The ETag of the record: refuse with `conflict` when it has changed since."
        yield _parameter("header", "If-Match", etag, {"type": "string", "pattern": '^"[0-9]+"$'})
        absent = "`*`: refuse with `conflict` when the record exists."
        yield _parameter("header", "If-None-Match", absent, {"const": "*"})


def _parameter(place: str, name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": place, "description": description, "schema": schema}


def _success_responses(endpoint: RestEndpoint[Any]) -> Json:
    schema = {} if isinstance(endpoint.answer, str) else _ref(endpoint.answer)
    content = {media_type: {"schema": schema} for media_type in (endpoint.media_type, *endpoint.also)}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in endpoint.statuses
    }


def _error_responses(endpoint: RestEndpoint[Any]) -> Json:
    codes: dict[int, set[str]] = defaultdict(set)
    for error in list_errors(endpoint):
        codes[WIRE[error.code].http].add(f"`{error.code}`")
    return {
        str(status): {
            "description": ", ".join(sorted(names)),
            "content": {JSON: {"schema": _error_schema(endpoint, status)}},
        }
        for status, names in sorted(codes.items())
    }


def _error_schema(endpoint: RestEndpoint[Any], status: int) -> Json:
    """The shape of an error, or that of the answer itself where it may come with the same status."""
    error = _ref(ErrorAnswer)
    if status not in endpoint.statuses or isinstance(endpoint.answer, str):
        return error
    return {"anyOf": [_ref(endpoint.answer), error]}


def _schemas(endpoints: Iterable[RestEndpoint[Any]]) -> Json:
    shapes: set[type[object]] = {ErrorAnswer}
    shapes |= {one.body.model for one in endpoints if one.body is not None and one.body.model is not None}
    shapes |= {part for one in endpoints if not isinstance(one.answer, str) for part in _parts(one.answer)}
    named = sorted(shapes, key=lambda shape: shape.__name__)
    adapters = [(shape.__name__, _MODE, TypeAdapter(shape)) for shape in named]
    _, schema = TypeAdapter.json_schemas(adapters, ref_template=_REF)
    found: Json = schema["$defs"]
    return found


def _parts(shape: Shape) -> tuple[type[object], ...]:
    return shape.__args__ if isinstance(shape, UnionType) else (shape,)


def _ref(shape: Shape) -> Json:
    parts = [{"$ref": _REF.format(model=part.__name__)} for part in _parts(shape)]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}
