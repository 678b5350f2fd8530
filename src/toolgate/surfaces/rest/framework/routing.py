"""Finding what a path leads to, by its segments: regular expressions would slow every start and request.

The route table: what an endpoint is, and the one way every request takes to its handler.

Role, ids, query, precondition, content type, size and JSON are checked here and nowhere else, so a
new endpoint cannot forget them; routes and OpenAPI document both come from the table.
"""

import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate.errors import (
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ToolgateError,
    UnsupportedMedia,
)
from toolgate.gateway.auth.identity import Identities, reaches
from toolgate.govern.process import GatewayProcess
from toolgate.model.principals import Principal, Role
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.asgi import IS_FROM_OTHER_ORIGIN
from toolgate.surfaces.http.endpoint import error_headers, trace_request
from toolgate.surfaces.http.parsing import parse_json, parse_off_loop, parse_query
from toolgate.surfaces.rest.framework.request import (
    FORM,
    SERVED_REVISION,
    FormField,
    await_revision,
    check_path,
    is_form,
    parse_form,
    parse_model,
    parse_number,
    parse_object,
    parse_path_ids,
    parse_plain_headers,
    parse_precondition,
    read_body,
)
from toolgate.surfaces.rest.framework.response import (
    JSON,
    OCTETS,
    WASM,
    NoBody,
    RestResponse,
    Shape,
    encode_error,
    encode_response,
)
from toolgate.telemetry.spans import TRACE_HEADERS


class _PathEntry(Protocol):
    """What stands under one path of the table."""

    @property
    def methods(self) -> Collection[str]:
        """Those it answers to."""


P = TypeVar("P", bound=_PathEntry)


class PathTable(Generic[P]):
    """Everything by its path, in which `{name}` stands for any one segment that is not empty."""

    def __init__(self, placed: Mapping[str, P]) -> None:
        self._by_length: dict[int, list[tuple[list[str], P]]] = defaultdict(list)
        for template, one in placed.items():
            parts = template.split("/")
            self._by_length[len(parts)].append((parts, one))
        for rows in self._by_length.values():
            rows.sort(key=lambda row: [_is_id(part) for part in row[0]])  # words before ids

    def find(self, path: str, method: str) -> tuple[P, Mapping[str, str]] | None:
        """What stands under `path`, and the ids in it.

        A path where an id could stand in another, as `/servers/import` could be a server, has its own methods
        alone: to any other method, it is the other's id.
        """
        parts = path.split("/")
        found = [
            (one, ids)
            for template, one in self._by_length.get(len(parts), ())
            if (ids := _ids_in(zip(template, parts, strict=True))) is not None
        ]
        return next((row for row in found if method in row[0].methods), found[-1] if found else None)


def _is_id(part: str) -> bool:
    return part.startswith("{")


def _ids_in(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str] | None:
    """The ids by their names; None where the path is another."""
    ids = {}
    for wanted, part in pairs:
        if _is_id(wanted) and part:
            ids[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return ids


Method = Literal["GET", "POST", "PUT", "DELETE"]
B = TypeVar("B")
Model = TypeVar("Model", bound=BaseModel)

SEE_DOCUMENT: Final = "see `/openapi.json` for what there is"
REQUEST_ID: Final = "x-request-id"
ANYONE: Final = None
"""The role of an endpoint that needs no credential. A wrong one is still refused there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter an endpoint takes in its query, or one header it takes."""

    name: str
    description: str
    form: Literal["text", "flag", "choice", "number"] = "text"
    """A flag is `true` or `false`, and false where it is left out; a choice is open then. A number is a whole
    one from 0 on.
    """


PLAN_HEADER: Final = Parameter(
    "Toolgate-Plan", "The id of the plan that showed the change: refuse any other effect."
)


@dataclass(frozen=True, slots=True)
class BodySpec(Generic[B]):
    """A request body: the model that documents it, and how it becomes what the handler gets."""

    model: type[BaseModel] | None
    """None: bytes that are not JSON."""
    parse: Callable[[Any], B]
    may_be_empty: bool = False
    media_type: str = JSON
    is_raw: bool = False
    """`parse` gets the bytes of the JSON, and makes sure itself that they are some."""
    parse_form_fields: Callable[[Sequence[FormField]], Mapping[str, Any]] | None = None
    """The JSON value that a multipart form stands for. None: the endpoint takes no forms."""


def validate_as(model: type[Model]) -> BodySpec[Model]:
    """A body that is checked by its model."""
    return BodySpec(model, partial(parse_model, model))


def accept_as(model: type[BaseModel], *, may_be_empty: bool = False) -> BodySpec[Mapping[str, Any]]:
    """A body shaped like `model`, which the registry checks when it is stored."""
    return BodySpec(model, parse_object, may_be_empty=may_be_empty)


NO_BODY: Final = BodySpec(NoBody, partial(parse_model, NoBody), may_be_empty=True)
"""The body of an action that needs none."""
OCTETS_BODY: Final[BodySpec[bytes]] = BodySpec(None, bytes, media_type=OCTETS)
"""A body that is carried as it is."""
WASM_BODY: Final[BodySpec[bytes]] = BodySpec(None, bytes, media_type=WASM)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCall(Generic[B]):
    """A request that passed every check of its endpoint."""

    principal: Principal | None
    """None only where the endpoint is for anyone and no credential was sent."""
    authorization: str | None
    """The credential that proved it, for what outlives the request."""
    ids: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Those of the endpoint's own that were sent, by their names in its row."""
    if_revision: int | None
    base_url: str
    """How the caller reached this gateway, without a slash at its end."""
    request_id: str
    """Made up here: it stands in a header of the answer, in the log and in the audit of what was called."""
    body: B

    @property
    def caller(self) -> Principal:
        """The principal, on every endpoint that has a role."""
        assert self.principal is not None
        return self.principal

    @property
    def plan_id(self) -> str | None:
        return self.headers.get(PLAN_HEADER.name)

    def number(self, name: str) -> int | None:
        """A number of the query, None where it is not there, or InvalidRequest."""
        return parse_number(name, self.query[name]) if name in self.query else None

    def flag(self, name: str) -> bool:
        """Whether a flag of the query is set, or InvalidRequest when it is neither that nor unset."""
        value = self.query.get(name, "false")
        if value not in {"true", "false"}:
            raise InvalidRequest(f"`{name}` must be `true` or `false`")
        return value == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestEndpoint(Generic[B]):
    """One row of the table. Its handler parses nothing, catches nothing: one call, one answer."""

    method: Method
    path: str
    role: Role | None
    summary: str
    handler: Callable[[Any, RestCall[B]], Awaitable[RestResponse]]
    """Gets what it is for: `GatewayProcess` always, `Control` where records are governed. Its docstring is
    the description in the document.
    """
    answer: Shape | str
    """The shape of the body it answers with, or the media type of what is not JSON."""
    also: tuple[str, ...] = ()
    """Other media types that it answers with, where it is asked to; its handler sets the header."""
    body: BodySpec[B] | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = (200,)
    """Those that `answer` comes with."""
    errors: tuple[type[ToolgateError], ...] = ()
    """Those of the handler; those of the checks before it are known from the row."""
    is_conditional: bool = False
    """Takes `If-Match` and `If-None-Match`."""
    is_traced: bool = False
    """A span is made of its requests, where requests are traced."""
    service: type | None = None
    """What its handler gets instead, if not every process has it. One without it has no such route."""

    @property
    def media_type(self) -> str:
        return self.answer if isinstance(self.answer, str) else JSON

    def bind(self, service: object) -> "RestEndpoint[B]":
        """The row with a handler that gets `service`."""
        return replace(self, handler=lambda _control, call: self.handler(service, call))


def build_router(
    endpoints: Sequence[RestEndpoint[Any]],
    control: GatewayProcess,
    *,
    services: Iterable[object] = (),
    elsewhere: str = SEE_DOCUMENT,
) -> ASGIApp:
    """The routes of the table, and one answer for every other path, with a hint where to look instead.

    A row for a service that is not among `services` has no route.
    """
    by_path: dict[str, list[RestEndpoint[Any]]] = defaultdict(list)
    by_type = {type(one): one for one in services}
    for endpoint in endpoints:
        if endpoint.service is None:
            by_path[endpoint.path].append(endpoint)
        elif endpoint.service in by_type:
            by_path[endpoint.path].append(endpoint.bind(by_type[endpoint.service]))
    paths = PathTable({path: _PathEndpoints(control, found) for path, found in by_path.items()})
    nowhere: tuple[_PathEndpoints, Mapping[str, str]] = _PathEndpoints(control, (), elsewhere), EMPTY

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        found, scope["path_params"] = paths.find(scope["path"], scope["method"]) or nowhere
        await found(scope, receive, send)

    return route


class _PathEndpoints:
    """All endpoints of one path, as an ASGI application; with none of them, the path of nothing."""

    def __init__(
        self, control: GatewayProcess, endpoints: Iterable[RestEndpoint[Any]], elsewhere: str = ""
    ) -> None:
        self._not_found_hint = elsewhere
        self._control = control
        self._by_method: Mapping[str, RestEndpoint[Any]] = {one.method: one for one in endpoints}
        self.methods = frozenset(self._by_method) | ({"HEAD"} if "GET" in self._by_method else set())
        self._is_open = any(one.role is ANYONE for one in self._by_method.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = f"req_{secrets.token_hex(16)}"
        response = await self._respond(request, request_id)
        response.headers[REQUEST_ID] = request_id
        await response(scope, receive, send)

    async def _respond(self, request: Request, request_id: str) -> Response:
        try:
            # Before anything else, so that without a valid key every path looks the same.
            principal = await _authenticate(self._control.identities, request, is_open=self._is_open)
            check_path(request.scope["path"])
            endpoint = self._endpoint(request.method)
            call = await _parse_call(endpoint, request, principal, request_id=request_id)
            with self._traced(endpoint, call, request):
                return await self._answer(endpoint, call, request)
        except ToolgateError as exc:
            return encode_error(exc, self._refusal_headers(request, exc))
        except Exception:
            # Where the request ends: what happened stands in the log alone, once.
            _log.exception("`%s %s` (%s) failed", request.method, request.scope["path"], request_id)
            return encode_error(ToolgateError("the request failed inside the gateway"))

    def _traced(
        self, endpoint: RestEndpoint[Any], call: RestCall[Any], request: Request
    ) -> AbstractContextManager[None]:
        tracing = self._control.gateway.tracing
        if not endpoint.is_traced or tracing is None:
            return nullcontext()
        notes = {"toolgate.door": "rest", "toolgate.principal": call.caller.id}
        carried = {name: value for name, value in request.headers.items() if name in TRACE_HEADERS}
        return trace_request(tracing, carried, verb=endpoint.method, route=endpoint.path, notes=notes)

    def _refusal_headers(self, request: Request, exc: ToolgateError) -> Mapping[str, str]:
        url = self._control.discovery.metadata_url(_read_base_url(request), "")
        return error_headers(exc, has_credential="authorization" in request.headers, metadata_url=url)

    async def _answer(self, endpoint: RestEndpoint[Any], call: RestCall[Any], request: Request) -> Response:
        gateway = self._control.gateway
        if endpoint.method == "GET":
            await await_revision(gateway, request.headers)
        served = gateway.snapshot.revision
        response = encode_response(await endpoint.handler(self._control, call), endpoint.media_type)
        if endpoint.role is not ANYONE:
            response.headers[SERVED_REVISION] = str(served)
        return response

    def _endpoint(self, method: str) -> RestEndpoint[Any]:
        if not self._by_method:
            raise NotFound("nothing is found under this path", hint=self._not_found_hint)
        endpoint = self._by_method.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise MethodNotAllowed(
                f"`{method[:20]}` is not a method of this path", data={"allowed": sorted(self._by_method)}
            )
        return endpoint


def _read_base_url(request: Request) -> str:
    return f"{request.scope.get('scheme', 'http')}://{request.headers.get('host', 'localhost')}"


async def _authenticate(identities: Identities, request: Request, *, is_open: bool) -> Principal | None:
    credentials = request.headers.getlist("authorization")
    if is_open and not credentials:
        return None
    # Two headers are one wrong credential: nobody picks the one that passes.
    authorization = ", ".join(credentials) if credentials else None
    peer = request.client.host if request.client else ""
    trusts_local = not request.scope.get(IS_FROM_OTHER_ORIGIN, False)
    return await identities.admit(
        authorization, peer=peer, place=request.scope["path"], trusts_local=trusts_local
    )


async def _parse_call(
    endpoint: RestEndpoint[B], request: Request, principal: Principal | None, *, request_id: str
) -> RestCall[B]:
    _check_role(endpoint, principal)
    ids = parse_path_ids(request.path_params)
    query = parse_query(request.scope["query_string"], {one.name for one in endpoint.query})
    if_revision = parse_precondition(request.headers) if endpoint.is_conditional else None
    headers = parse_plain_headers(request.headers, [one.name for one in endpoint.headers])
    return RestCall(
        principal=principal,
        authorization=request.headers.get("authorization"),
        ids=ids,
        query=query,
        headers=headers,
        if_revision=if_revision,
        base_url=_read_base_url(request),
        request_id=request_id,
        body=await _parse_body(endpoint.body, request),
    )


async def _parse_body(intake: BodySpec[B] | None, request: Request) -> Any:
    if intake is None:
        return None
    if intake.parse_form_fields is not None and is_form(request.headers.get("content-type")):
        return await _parse_form_body(intake, intake.parse_form_fields, request)
    sent = await read_body(request, media_type=intake.media_type, may_be_empty=intake.may_be_empty)
    if intake.model is None:
        return intake.parse(sent)
    return await parse_off_loop(intake.parse if intake.is_raw else _parsing(intake), sent)


async def _parse_form_body(
    intake: BodySpec[B], from_form: Callable[[Sequence[FormField]], Mapping[str, Any]], request: Request
) -> B:
    if "origin" in request.headers:
        # A foreign page can send a form without asking first (CSRF). Programs send no Origin.
        raise UnsupportedMedia("web pages may not send forms", hint=f"send `Content-Type: {JSON}`")
    content_type = request.headers["content-type"]
    sent = await read_body(request, media_type=FORM, may_be_empty=False)
    return await parse_off_loop(lambda body: intake.parse(from_form(parse_form(content_type, body))), sent)


def _parsing(intake: BodySpec[B]) -> Callable[[bytes], B]:
    return lambda body: intake.parse(parse_json(body))


def _check_role(endpoint: RestEndpoint[Any], principal: Principal | None) -> None:
    if endpoint.role is ANYONE:
        return
    if principal is None or not reaches(principal.role, endpoint.role):
        raise Forbidden(f"this needs the role `{endpoint.role}`")
