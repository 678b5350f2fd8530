"""One HTTP request to the chat endpoint: its target, its caller, and the services that handlers use.

`ChatExchange` is made once, by the endpoint, and never changes. What a chat needs beyond HTTP is in
`gateway.chat`: handlers make its context from the exchange.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from toolgate.chat.requests import ChatOptions
from toolgate.errors import BudgetExceeded, InvalidRecord, InvalidRequest, NotFound, PolicyDenied
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.chat.scope import ChatScope, resolve_chat_scope
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.compose import explain_for, visible_servers
from toolgate.model.json_text import Members
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Principal
from toolgate.policy.scope import Scope
from toolgate.surfaces.http.messages import Headers, HttpRequest, Responder
from toolgate.surfaces.http.parsing import parse_off_loop, parse_query
from toolgate.telemetry.spans import read_trace_id
from toolgate.upstream.models.client import Models

TASK_HEADER: Final = b"x-toolgate-task"
_RESOURCES: Final = ("/v1/chat/completions", "/v1/responses", "/v1/models")
_MODEL: Final = "/v1/models/"
_HINT: Final = (
    "there are `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`, "
    "each also under `/t/<task>`"
)
_NO_KEY: Final = b"Bearer none"
"""OpenAI's clients insist on a key. This is the key of a client that has none."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """A parsed URL. `rest` is what follows the resource: the id of one model."""

    resource: str
    task_id: str | None = None
    rest: str = ""


def is_openai_path(path: str) -> bool:
    """Whether `path` belongs to this endpoint."""
    return path[:4] == "/v1/" or path == "/v1" or path[:3] == "/t/"


def parse_target(request: HttpRequest) -> ChatTarget:
    """Parse the URL and the task header. Raises NotFound for an unknown path or task, and InvalidRequest."""
    task_id, path = None, request.path
    if path.startswith("/t/"):
        name, slash, rest = path.removeprefix("/t/").partition("/")
        task_id, path = _parse_task(name), slash + rest
    parse_query(request.query, ())
    header = request.headers.get(TASK_HEADER)
    if header is not None:
        named = _parse_task(header.decode("latin-1"))
        if task_id not in (None, named):
            raise InvalidRequest(
                "the task in the path and the one in `X-Toolgate-Task` differ", hint="name it in one place"
            )
        task_id = named
    if path in _RESOURCES:
        return ChatTarget(path.removeprefix("/v1/"), task_id)
    model = path.removeprefix(_MODEL)
    if model not in ("", path):
        return ChatTarget("models", task_id, model)
    raise NotFound("no such path on the chat endpoint", hint=_HINT)


def _parse_task(text: str) -> str:
    """An invalid task id names no task: clients get the same error for both."""
    try:
        return parse_task_id(text)
    except InvalidRecord as exc:
        raise NotFound(f"no task `{ascii(text[:80])[1:-1]}`", hint=exc.hint) from exc


class ScopedRequest(Protocol):
    """The part of a parsed request that decides its scope."""

    @property
    def model(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def options(self) -> ChatOptions: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServices:
    """What all chat requests share. `wall_s` is the time of day."""

    gateway: Gateway
    models: Models
    signer: Signer
    wall_s: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatExchange:
    """One admitted HTTP request, and the way to respond to it."""

    services: ChatServices
    request: HttpRequest
    responder: Responder
    principal: Principal
    target: ChatTarget
    body: Members
    """Of a POST: one JSON object, parsed one level deep."""
    request_id: str
    """Made by the endpoint. It is in the response headers, in the log and in the audit log."""

    @property
    def fingerprint(self) -> str:
        """The principal as sealed ids know it."""
        return fingerprint_of(self.principal)

    @property
    def headers(self) -> Headers:
        """The headers of every whole response."""
        return response_headers(self.request_id)

    def trace(self, door: str) -> Trace:
        """Where this request came in, for the audit log."""
        tracing = self.services.gateway.tracer
        return Trace(door, request_id=self.request_id, trace_id=read_trace_id(tracing))

    def resolve_scope(self, request: ScopedRequest) -> ChatScope:
        """Raises what every endpoint refuses a scope with, and UnknownModel."""
        return resolve_chat_scope(
            self.services.gateway,
            self.principal,
            task_id=self.target.task_id,
            model=request.model,
            params=request.params,
            options=request.options,
        )

    async def parse(self, parse: Callable[[], T]) -> T:
        """Run `parse`, off the event loop if the body is large."""
        return await parse_off_loop(lambda _: parse(), self.request.body)

    def explain(self, caller: Caller, scope: Scope) -> dict[str, Any]:
        """Explain the decisions on `scope`, which is the caller's, as far as this principal may see them."""
        gateway = self.services.gateway
        explained = explain_for(self.principal, caller, gateway.snapshot, gateway.limits)
        return {
            "servers": visible_servers(gateway.snapshot, self.principal, scope),
            "tokens": scope.tokens,
            "decisions": [*explained.servers, *explained.tools],
        }

    @contextmanager
    def record_denials(self, door: str) -> Iterator[None]:
        """Audit what policy or a budget denies in the block."""
        try:
            yield
        except (PolicyDenied, BudgetExceeded) as exc:
            task_id = Caller(self.principal, self.target.task_id).effective_task_id
            gateway = self.services.gateway
            gateway.record_refused(self.principal, exc, trace=self.trace(door), task_id=task_id)
            raise


def response_headers(request_id: str) -> Headers:
    """The headers of every whole response, errors included."""
    return [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]


def read_authorization(request: HttpRequest) -> str | None:
    """The credential as it was sent; None for a client without a key."""
    sent = request.headers.get(b"authorization")
    return None if sent is None or sent == _NO_KEY else sent.decode("latin-1")


Handler: TypeAlias = Callable[[ChatExchange], Awaitable[None]]
"""Responds to one request. Raises a ToolgateError only before the first byte is sent."""
