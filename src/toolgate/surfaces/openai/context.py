"""What a URL of the chat door asks for: a resource of the OpenAI API, and the task whose scope applies.

One HTTP request to the chat door while it is answered.

What the handlers of this door have in common.

Why a chat has the tools it has, as far as its caller may know.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from toolgate.chat.requests import GatewayOptions
from toolgate.errors import BudgetExceeded, InvalidRecord, InvalidRequest, NotFound, PolicyDenied
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.chat.scope import ChatScope, resolve_chat_scope
from toolgate.gateway.chat.session import SealedTurns, count_chat
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.explain import explain_for, visible_servers
from toolgate.model.json_text import Members
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Principal
from toolgate.policy.scope import Scope
from toolgate.surfaces.http.messages import Headers, HttpRequest, Responder
from toolgate.surfaces.http.parsing import parse_query
from toolgate.telemetry.spans import read_trace_id
from toolgate.upstream.models.client import Models

TASK_HEADER: Final = b"x-toolgate-task"
_SERVED: Final = (
    "there are `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`, "
    "each also under `/t/<task>`"
)


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """A parsed URL. `rest` is what follows the resource: the id of one model."""

    resource: str
    task_id: str | None = None
    rest: str = ""


def is_openai_path(path: str) -> bool:
    """Whether `path` belongs to this door."""
    return path[:4] == "/v1/" or path == "/v1" or path[:3] == "/t/"


def parse_target(request: HttpRequest) -> ChatTarget:
    """The target of a request. Raises NotFound for a path or a task, InvalidRequest for what is ambiguous."""
    task_id, path = _split_task(request.path)
    parse_query(request.query, ())
    named = request.headers.get(TASK_HEADER)
    if named is not None:
        asked = _parse_task(named.decode("latin-1"))
        if task_id not in (None, asked):
            raise InvalidRequest(
                "the task in the path and the one in `X-Toolgate-Task` differ", hint="name it in one place"
            )
        task_id = asked
    if path in ("/v1/chat/completions", "/v1/responses", "/v1/models"):
        return ChatTarget(path.removeprefix("/v1/"), task_id)
    if path.startswith("/v1/models/") and len(path) > len("/v1/models/"):
        return ChatTarget("models", task_id, path.removeprefix("/v1/models/"))
    raise NotFound("no such path on the chat door", hint=_SERVED)


def _split_task(path: str) -> tuple[str | None, str]:
    if not path.startswith("/t/"):
        return None, path
    task_id, slash, rest = path.removeprefix("/t/").partition("/")
    return _parse_task(task_id), slash + rest


def _parse_task(text: str) -> str:
    """A text that cannot be a task's id names no task that exists."""
    try:
        return parse_task_id(text)
    except InvalidRecord as exc:
        raise NotFound(f"no task `{ascii(text[:80])[1:-1]}`", hint=exc.hint) from exc


_NO_KEY: Final = b"Bearer none"
"""OpenAI's clients insist on a key; with this one they say that they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatExchange:
    """What a handler needs of one request."""

    request: HttpRequest
    responder: Responder
    principal: Principal
    target: ChatTarget
    body: Members
    """Of a POST: one JSON object, taken apart one level deep."""
    request_id: str
    """Made up here: it stands in the answer's headers, in the log and in the audit."""

    @property
    def task_id(self) -> str | None:
        """The task that path or header name. The key's own applies where they name none."""
        return self.target.task_id

    @property
    def authorization(self) -> str | None:
        """The credential, as it was sent."""
        return authorization_of(self.request)

    @property
    def request_id_header(self) -> tuple[bytes, bytes]:
        """The header by which the caller learns the request's id."""
        return _request_id_header(self.request_id)

    @property
    def headers(self) -> Headers:
        """What every whole answer carries."""
        return answer_headers(self.request_id)


def answer_headers(request_id: str) -> Headers:
    """What every whole answer carries, be it a failure."""
    return [_request_id_header(request_id), (b"x-content-type-options", b"nosniff")]


def authorization_of(request: HttpRequest) -> str | None:
    """The credential of a request, as it was sent."""
    sent = request.headers.get(b"authorization")
    return None if sent is None or sent == _NO_KEY else sent.decode("latin-1")


def _request_id_header(request_id: str) -> tuple[bytes, bytes]:
    return b"x-request-id", request_id.encode()


Handler: TypeAlias = Callable[[ChatExchange], Awaitable[None]]
"""Answers one request, or raises a ToolgateError as long as nothing was sent."""


class ScopedRequest(Protocol):
    """A parsed request, as far as it says what it is served with."""

    @property
    def model(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def asked(self) -> GatewayOptions: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServices:
    """All that is needed to ask models and to run tools. `wall_s` is the time of day."""

    gateway: Gateway
    models: Models
    signer: Signer
    wall_s: Callable[[], float]

    @property
    def turns(self) -> SealedTurns:
        """The hidden halves of turns, as clients keep them."""
        return SealedTurns(self.signer, self.wall_s)

    def scope(self, exchange: ChatExchange, request: ScopedRequest) -> ChatScope:
        """What a request is served with. Raises what every door refuses a scope with, and UnknownModel."""
        return resolve_chat_scope(
            self.gateway,
            exchange.principal,
            task_id=exchange.task_id,
            model=request.model,
            params=request.params,
            asked=request.asked,
        )

    @contextmanager
    def record_denials(self, exchange: ChatExchange, *, door: str) -> Iterator[None]:
        """Whoever asks for more than it may have is on record."""
        try:
            yield
        except (PolicyDenied, BudgetExceeded) as exc:
            trace = Trace(door, request_id=exchange.request_id, trace_id=read_trace_id(self.gateway.tracing))
            task_id = Caller(exchange.principal, exchange.task_id).effective_task_id
            self.gateway.record_refused(exchange.principal, exc, trace=trace, task_id=task_id)
            raise

    def counted(self, scope: ChatScope) -> AbstractContextManager[list[str]]:
        """Count one request by how it ends."""
        return count_chat(self.gateway, scope)


def explain_scope(gateway: Gateway, asker: Principal, caller: Caller, scope: Scope) -> dict[str, Any]:
    """The decisions on `scope`, which is the caller's."""
    found = explain_for(gateway, asker, caller)
    return {
        "servers": visible_servers(gateway.snapshot, asker, scope),
        "tokens": scope.tokens,
        "decisions": [*found.servers, *found.tools],
    }
