"""The route table: what an endpoint is, and the path of every request to its handler.

Role, ids, query, precondition, content type and JSON are checked here and nowhere else, so a new endpoint
cannot forget them. Routes and the OpenAPI document both come from the table.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel

from toolgate import errors
from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import reaches
from toolgate.govern.process import GatewayProcess
from toolgate.model.principals import Principal, Role
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.messages import HttpRequest, Responder, error_headers, trace_request
from toolgate.surfaces.http.parsing import parse_query, read_trace_headers
from toolgate.surfaces.rest.framework.request import (
    PATH_PARSERS,
    BodySpec,
    NoBody,
    Parameter,
    RestCall,
    parse_number,
    parse_plain_headers,
    parse_precondition,
    validate_as,
)
from toolgate.surfaces.rest.framework.response import (
    JSON,
    ResponseBody,
    RestResponse,
    Shape,
    error_response,
    send_response,
)

Method = Literal["GET", "POST", "PUT", "DELETE"]
B = TypeVar("B")

SEE_DOCUMENT: Final = "see `/openapi.json` for all paths"
REQUEST_ID: Final = b"x-request-id"
MIN_REVISION: Final = "Toolgate-Min-Revision"
SERVED_REVISION: Final = "Toolgate-Revision"
"""On responses: the registry revision that they reflect. They may reflect a later one in part."""
MAX_REVISION_WAIT_S: Final = 2.0
"""Nodes catch up within milliseconds; for longer delays, clients retry."""
ANYONE: Final = None
"""The role of an endpoint that needs no credential. An invalid one is still rejected."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestEndpoint(Generic[B]):
    """One row of the table. Its handler parses nothing and catches nothing: one call, one response."""

    method: Method
    path: str
    handler: "Handler[B]"
    """Gets `GatewayProcess`, or `Control` on endpoints of the control plane. OpenAPI shows its docstring."""
    role: Role | None
    summary: str
    response: Shape | str
    """The shape of its response body, or the media type if that is not JSON."""
    also: tuple[str, ...] = ()
    """Other media types that its handler may set."""
    body: BodySpec[B] | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = (200,)
    """The statuses of `response`."""
    errors: tuple[type[ToolgateError], ...] = ()
    """The errors of the handler. Those of the checks before it follow from the other fields."""
    is_conditional: bool = False
    """Accepts `If-Match` and `If-None-Match`."""
    is_traced: bool = False
    """Its requests become spans, if tracing is on."""
    service: type | None = None
    """The service that its handler gets instead. A process without it does not have the route."""

    @property
    def media_type(self) -> str:
        return self.response if isinstance(self.response, str) else JSON


Handler = Callable[[Any, RestCall[B]], "Awaitable[RestResponse | ResponseBody]"]


def _endpoint(
    method: Method,
    path: str,
    role: Role | None,
    summary: str,
    response: Shape | str | None = None,
    **options: Any,
) -> Callable[[Handler[B]], RestEndpoint[B]]:
    """A decorator that turns a handler into an endpoint; see `list_endpoints`.

    Defaults: the shape of the response is the return type of the handler, and the body is validated as the
    model in the type of its call.
    """

    def make_endpoint(handler: Handler[B]) -> RestEndpoint[B]:
        _, call_type, return_type = handler.__annotations__.values()
        model = get_args(call_type)[0]
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        body = validate_as(model, may_be_empty=model is NoBody) if is_model else None
        return RestEndpoint(
            method=method,
            path=path,
            role=role,
            summary=summary,
            handler=handler,
            response=response or return_type,
            **{"body": body, **options},
        )

    return make_endpoint


get: Final = partial(_endpoint, "GET")
post: Final = partial(_endpoint, "POST")
put: Final = partial(_endpoint, "PUT")
delete: Final = partial(_endpoint, "DELETE")

EndpointsByMethod = Mapping[str, RestEndpoint[Any]]


def list_endpoints(*modules: ModuleType) -> tuple[RestEndpoint[Any], ...]:
    """The endpoints in these modules, alone or in tuples. The later of two for one path wins."""
    found: dict[tuple[str, str], RestEndpoint[Any]] = {}
    for value in chain.from_iterable(vars(module).values() for module in modules):
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, RestEndpoint):
                found[one.method, one.path] = one
    return tuple(found.values())


class PathTable:
    """All endpoints by path. `{name}` in a template matches one segment that is not empty."""

    def __init__(self, endpoints: Iterable[RestEndpoint[Any]]) -> None:
        by_path: dict[str, dict[str, RestEndpoint[Any]]] = defaultdict(dict)
        for endpoint in endpoints:
            by_path[endpoint.path][endpoint.method] = endpoint
        # Segments, not regular expressions: those would slow every start and request.
        self._by_length: dict[int, list[tuple[list[str], EndpointsByMethod]]] = defaultdict(list)
        for path in sorted(by_path, key=lambda path: [part.startswith("{") for part in path.split("/")]):
            parts = path.split("/")
            self._by_length[len(parts)].append((parts, by_path[path]))

    def find(self, path: str, method: str) -> tuple[EndpointsByMethod, Mapping[str, str]]:
        """The endpoints of `path`, and the ids in it. No endpoints: the path does not exist.

        If a path could also contain an id, as `/servers/import` could, it applies to its own methods only.
        With any other method, `import` is an id.
        """
        parts = path.split("/")
        found = [
            (endpoints, ids)
            for template, endpoints in self._by_length.get(len(parts), ())
            if (ids := _match(template, parts)) is not None
        ]
        last = found[-1] if found else ({}, EMPTY)
        return next((row for row in found if method in row[0]), last)


def _match(template: Sequence[str], parts: Sequence[str]) -> Mapping[str, str] | None:
    """The ids by their names; None if the path does not match."""
    ids = {}
    for name, part in zip(template, parts, strict=True):
        if name.startswith("{") and part:
            ids[name[1:-1]] = part
        elif name != part:
            return None
    return ids


class RestApi:
    """Serves the endpoints of a table. All other paths get the same response."""

    def __init__(
        self,
        endpoints: Sequence[RestEndpoint[Any]],
        process: GatewayProcess,
        *,
        services: Iterable[object] = (),
        hint: str = SEE_DOCUMENT,
        max_revision_wait_s: float = MAX_REVISION_WAIT_S,
    ) -> None:
        """`services`: those of this process only. `hint`: of the error for unknown paths."""
        self._services: dict[type | None, object] = {None: process} | {type(one): one for one in services}
        self._paths = PathTable(one for one in endpoints if one.service in self._services)
        self._process = process
        self._hint = hint
        self._max_revision_wait_s = max_revision_wait_s

    async def __call__(self, request: HttpRequest, responder: Responder) -> None:
        request_id = f"req_{secrets.token_hex(16)}"
        responder.add_headers([(REQUEST_ID, request_id.encode())])
        try:
            response = await self._respond(request, request_id)
        except ToolgateError as exc:
            response = error_response(exc, error_headers(exc, request, self._process.discovery))
        except Exception:
            # The cause goes to the log only.
            _log.exception("`%s %s` (%s) failed", request.method, request.path, request_id)
            response = error_response(ToolgateError("the request failed inside the gateway"))
        await send_response(responder, response, is_head=request.method == "HEAD")

    async def _respond(self, request: HttpRequest, request_id: str) -> RestResponse:
        method = "GET" if request.method == "HEAD" else request.method
        endpoints, ids = self._paths.find(request.path, method)
        # First, so that every path looks the same without a valid key.
        principal = await self._authenticate(request, endpoints)
        if not request.path.isprintable():
            raise errors.InvalidRequest("the path contains unprintable characters")
        endpoint = self._select(endpoints, method)
        if endpoint.role is not ANYONE and (principal is None or not reaches(principal.role, endpoint.role)):
            raise errors.Forbidden(f"this needs the role `{endpoint.role}`")
        call = RestCall(
            principal=principal,
            authorization=request.header("authorization"),
            ids={name: PATH_PARSERS[name](value) for name, value in ids.items()},
            query=parse_query(request.query, {one.name for one in endpoint.query}),
            if_revision=parse_precondition(request) if endpoint.is_conditional else None,
            headers=parse_plain_headers(request, [one.name for one in endpoint.headers]),
            base_url=request.base_url,
            request_id=request_id,
            body=None if endpoint.body is None else await endpoint.body.read(request),
        )
        tracer = self._process.gateway.tracer if endpoint.is_traced else None
        notes = {"toolgate.door": "rest", "toolgate.principal": "" if principal is None else principal.id}
        trace = read_trace_headers(request)
        with trace_request(tracer, trace, verb=endpoint.method, route=endpoint.path, notes=notes):
            return await self._handle(endpoint, call, request)

    async def _authenticate(self, request: HttpRequest, endpoints: EndpointsByMethod) -> Principal | None:
        # The listener joins two headers to one invalid credential, so neither counts.
        authorization = request.header("authorization")
        if authorization is None and any(one.role is ANYONE for one in endpoints.values()):
            return None
        return await self._process.identities.authenticate(
            authorization, peer=request.peer, path=request.path, trusts_local=not request.is_from_other_origin
        )

    def _select(self, endpoints: EndpointsByMethod, method: str) -> RestEndpoint[Any]:
        if not endpoints:
            raise errors.NotFound("unknown path", hint=self._hint)
        if method not in endpoints:
            allowed = {"allowed": sorted(endpoints)}
            raise errors.MethodNotAllowed(f"this path has no method `{method[:20]}`", data=allowed)
        return endpoints[method]

    async def _handle(
        self, endpoint: RestEndpoint[Any], call: RestCall[Any], request: HttpRequest
    ) -> RestResponse:
        gateway = self._process.gateway
        if endpoint.method == "GET":
            await self._await_revision(request)
        headers = {"content-type": endpoint.media_type}
        if endpoint.role is not ANYONE:
            headers[SERVED_REVISION] = str(gateway.snapshot.revision)
        result = await endpoint.handler(self._services[endpoint.service], call)
        response = result if isinstance(result, RestResponse) else RestResponse(result)
        return replace(response, headers={**headers, **response.headers})

    async def _await_revision(self, request: HttpRequest) -> None:
        """Wait until the gateway serves the revision that the request names. Raises RevisionNotReached.

        The gateway follows the store, so a handler that reads the store reads nothing older either.
        """
        sent = parse_plain_headers(request, [MIN_REVISION])
        if not sent:
            return
        gateway, revision = self._process.gateway, parse_number(MIN_REVISION, sent[MIN_REVISION])
        try:
            async with asyncio.timeout(self._max_revision_wait_s):
                await gateway.wait_for_revision(revision)
        except TimeoutError:
            problem, served = f"revision {revision} is not available here yet", gateway.snapshot.revision
            raise errors.RevisionNotReached(problem, data={"revision": served}) from None
