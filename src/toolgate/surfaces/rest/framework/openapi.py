"""The OpenAPI document, generated from the route table and the models."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from types import UnionType
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from toolgate import __version__, errors
from toolgate.govern.process import GatewayProcess
from toolgate.surfaces.rest.framework.request import FORM, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import DESCRIBED, JSON, ErrorResponse, Shape
from toolgate.surfaces.rest.framework.routing import ANYONE, MIN_REVISION, RestEndpoint, get

Json = dict[str, Any]

_DESCRIPTION: Final = (
    "Manage a Toolgate gateway, and inspect what it serves. Every error has the same shape and a stable code."
    " If the gateway trusts loopback, a request from there without a key acts as the local administrator."
)
_REF: Final = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_FORMS: Final[dict[str, Json]] = {
    "text": {"type": "string"},
    "flag": {"type": "boolean", "default": False},
    "choice": {"type": "boolean"},
    "number": {"type": "integer", "minimum": 0},
}
_PATH_WORDS: Final = {
    "version": "The version of the package.",
    "sha256": "The SHA-256 of the whole archive or module, in lower-case hexadecimal.",
    "part": "The number of the part, from 1.",
    "category": "The `id` of the category, percent-encoded.",
    "namespace": "The part of the server's name before the slash.",
    "server_name": "The part of the server's name after the slash.",
    "server_version": "The version of the server, or `latest`.",
}
"""Path parameters that are not ids."""
_MIN_REVISION: Final = Parameter(
    MIN_REVISION,
    "A registry revision from an earlier response. The gateway waits up to 2 s until it serves it.",
    "number",
)


def add_openapi_endpoint(endpoints: Sequence[RestEndpoint[Any]]) -> tuple[RestEndpoint[Any], ...]:
    """`endpoints`, and the one that serves their OpenAPI document."""

    @get("/openapi.json", ANYONE, "The OpenAPI document", JSON)
    async def show_document(_serving: GatewayProcess, _call: RestCall[None]) -> bytes:
        """This OpenAPI document."""
        return encode_document()

    @cache
    def encode_document() -> bytes:
        """On the first request: the schemas of all models would slow every start."""
        return msgspec.json.encode(describe_api(table))

    table = (show_document, *endpoints)
    return table


def describe_api(endpoints: Sequence[RestEndpoint[Any]]) -> Json:
    """The OpenAPI document of `endpoints`."""
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
                "key": {"type": "http", "scheme": "bearer", "description": "A key of the gateway."}
            },
        },
    }


def list_errors(endpoint: RestEndpoint[Any]) -> Iterator[type[errors.ToolgateError]]:
    """Every error of the endpoint: those of the checks before its handler, then its own."""
    yield from (errors.Unauthenticated, errors.TooManyAttempts, errors.IssuerUnavailable)
    yield errors.InvalidRequest
    if endpoint.role is not ANYONE:
        yield from (errors.Forbidden, errors.StorageUnavailable)
    if _PATH_PARAMETER.search(endpoint.path):
        yield from (errors.InvalidRecord, errors.NotFound)
    if endpoint.service is not None:  # without the service, the path does not exist
        yield errors.NotFound
    if endpoint.is_conditional:
        yield errors.Conflict
    if endpoint.method == "GET":
        yield errors.RevisionNotReached
    if endpoint.body is not None:
        yield from (errors.UnsupportedMedia, errors.BodyTooLarge)
        if endpoint.body.model is not None:
            yield errors.ParseFailed
    yield from endpoint.errors
    yield errors.ToolgateError


def _operation(endpoint: RestEndpoint[Any]) -> Json:
    role = "no credential" if endpoint.role is ANYONE else f"the role `{endpoint.role}` or above"
    operation: Json = {
        "operationId": re.sub(r"[^a-z]+", "-", endpoint.summary.lower()),
        "summary": endpoint.summary,
        "description": f"{inspect.getdoc(endpoint.handler)}\n\nNeeds {role}.",
        "security": [] if endpoint.role is ANYONE else [{"key": []}],
        "parameters": list(_parameters(endpoint)),
        "responses": {**_success_responses(endpoint), **_error_responses(endpoint)},
    }
    if (body := endpoint.body) is not None:
        # Bytes have no schema. The members of a form are described by its endpoint.
        content: Json = {body.media_type: {} if body.model is None else {"schema": _ref(body.model)}}
        if body.parse_form_fields is not None:
            content[FORM] = {"schema": {"type": "object"}}
        operation["requestBody"] = {"required": not body.may_be_empty, "content": content}
    return operation


def _parameters(endpoint: RestEndpoint[Any]) -> Iterator[Json]:
    for name in _PATH_PARAMETER.findall(endpoint.path):
        description = _PATH_WORDS.get(name, f"The id of the {name.removesuffix('_id')}.")
        yield _parameter("path", name, description, {"type": "string", "minLength": 1}) | {"required": True}
    for one in endpoint.query:
        yield _parameter("query", one.name, one.description, _FORMS[one.form])
    for one in (*endpoint.headers, *((_MIN_REVISION,) if endpoint.method == "GET" else ())):
        yield _parameter("header", one.name, one.description, _FORMS[one.form])
    if endpoint.is_conditional:
        etag = "The ETag of the record. Fails with `conflict` if the record has changed since."
        yield _parameter("header", "If-Match", etag, {"type": "string", "pattern": '^"[0-9]+"$'})
        absent = "`*`: fails with `conflict` if the record exists."
        yield _parameter("header", "If-None-Match", absent, {"const": "*"})


def _parameter(place: str, name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": place, "description": description, "schema": schema}


def _success_responses(endpoint: RestEndpoint[Any]) -> Json:
    schema = {} if isinstance(endpoint.response, str) else _ref(endpoint.response)
    content = {media_type: {"schema": schema} for media_type in (endpoint.media_type, *endpoint.also)}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": content}
        for status in endpoint.statuses
    }


def _error_responses(endpoint: RestEndpoint[Any]) -> Json:
    codes: dict[int, set[str]] = defaultdict(set)
    for error in list_errors(endpoint):
        codes[errors.WIRE[error.code].http].add(f"`{error.code}`")
    failed = _ref(ErrorResponse)
    # The endpoint's own response may have the status of an error.
    own = failed if isinstance(endpoint.response, str) else {"anyOf": [_ref(endpoint.response), failed]}
    return {
        str(status): {
            "description": ", ".join(sorted(names)),
            "content": {JSON: {"schema": own if status in endpoint.statuses else failed}},
        }
        for status, names in sorted(codes.items())
    }


class _SchemaGenerator(GenerateJsonSchema):
    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A value of another package is sent whole, its defaults included. A shape may leave them out."""
        found = super().dataclass_schema(schema)
        if "__pydantic_config__" not in vars(schema["cls"]):
            found["required"] = list(found["properties"])
        return found


def _schemas(endpoints: Iterable[RestEndpoint[Any]]) -> Json:
    shapes: set[type[object]] = {ErrorResponse}
    shapes |= {one.body.model for one in endpoints if one.body is not None and one.body.model is not None}
    shapes |= {
        part for one in endpoints if not isinstance(one.response, str) for part in _parts(one.response)
    }
    named = sorted(shapes, key=lambda shape: shape.__name__)
    # One mode for all: members with a default are optional in requests and responses.
    mode: JsonSchemaMode = "validation"
    # In a list: pydantic accepts no configuration for a dataclass of another package itself.
    lists = [(shape.__name__, list[shape]) for shape in named]  # type: ignore[valid-type]
    adapters = [(name, mode, TypeAdapter(one, config=DESCRIBED)) for name, one in lists]
    _, schema = TypeAdapter.json_schemas(adapters, ref_template=_REF, schema_generator=_SchemaGenerator)
    return dict(schema["$defs"])


def _parts(shape: Shape) -> tuple[type[object], ...]:
    return shape.__args__ if isinstance(shape, UnionType) else (shape,)


def _ref(shape: Shape) -> Json:
    parts = [{"$ref": _REF.format(model=part.__name__)} for part in _parts(shape)]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}
