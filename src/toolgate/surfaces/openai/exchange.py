"""One HTTP request to the chat endpoint, and how errors and event streams look to OpenAI's clients.

`ChatExchange` is made once, by the endpoint, and never changes: its target, its caller, and the services that
handlers use. What a chat needs beyond HTTP is in `gateway.chat`. The one place that converts a ToolgateError
for clients of this API.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from toolgate import errors
from toolgate.chat.requests import ChatRequest
from toolgate.chat.responses.requests import ResponsesRequest
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.auth.signing import Signer
from toolgate.gateway.chat.completions import COMPLETIONS_PATH
from toolgate.gateway.chat.scope import ChatScope, resolve_chat_scope
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace, explain_for, visible_servers
from toolgate.model.json_text import Members
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Principal
from toolgate.policy.scope import Scope
from toolgate.surfaces.http.messages import (
    EVENT_HEADERS,
    KEEPALIVE,
    KEEPALIVE_S,
    Headers,
    HttpRequest,
    Responder,
)
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
            raise errors.InvalidRequest(
                "the task in the path and the one in `X-Toolgate-Task` differ", hint="name it in one place"
            )
        task_id = named
    if path in _RESOURCES:
        return ChatTarget(path.removeprefix("/v1/"), task_id)
    model = path.removeprefix(_MODEL)
    if model not in ("", path):
        return ChatTarget("models", task_id, model)
    raise errors.NotFound("no such path on the chat endpoint", hint=_HINT)


def _parse_task(text: str) -> str:
    """An invalid task id names no task: clients get the same error for both."""
    try:
        return parse_task_id(text)
    except errors.InvalidRecord as exc:
        raise errors.NotFound(f"no task `{ascii(text[:80])[1:-1]}`", hint=exc.hint) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServices:
    """What all chat requests share. `wall_s` is the time of day."""

    gateway: Gateway
    models: Models
    signer: Signer
    wall_s: Callable[[], float]
    keepalive_s: float = KEEPALIVE_S
    """Between comments on a stream while it is silent."""


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

    def trace(self, surface: str) -> Trace:
        """Where this request came in, for the audit log."""
        trace_id = read_trace_id(self.services.gateway.tracer)
        return Trace(surface, request_id=self.request_id, trace_id=trace_id)

    def resolve_scope(self, request: ChatRequest | ResponsesRequest) -> ChatScope:
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
    def record_denials(self, surface: str) -> Iterator[None]:
        """Audit what policy or a budget denies in the block."""
        try:
            yield
        except (errors.PolicyDenied, errors.BudgetExceeded) as exc:
            task_id = Caller(self.principal, self.target.task_id).effective_task_id
            gateway = self.services.gateway
            gateway.record_refused(self.principal, exc, trace=self.trace(surface), task_id=task_id)
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


DONE: Final = b"data: [DONE]\n\n"
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
_encode = msgspec.json.encode


def encode_failure(exc: errors.ToolgateError) -> tuple[int, bytes]:
    """Encode an error for a client of the OpenAI API: the status, and the body.

    An error of the model's server passes with its status, as it came. Its 401 does not: it is about the
    gateway's credential, and the client would take it for its own.
    """
    status = exc.wire.http
    if isinstance(exc, errors.ModelRefused):
        if exc.data["status"] == 401:
            exc = errors.ModelRefused("the model's server does not accept this gateway's credential")
        else:
            status = int(exc.data["status"])
            if (found := _find_error(exc.data["body"])) is not None:
                return status, found
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    # The message includes the hint: clients show nothing else.
    message = f"{str(exc).removesuffix('.')}. {exc.hint}" if exc.hint else str(exc)
    error = {"message": message, "type": kind, "param": exc.data.get("param"), "code": exc.code}
    return status, _encode({"error": error})


def send_failure(responder: Responder, exc: errors.ToolgateError, headers: Headers) -> None:
    """Send an error as the whole response."""
    status, body = encode_failure(exc)
    if isinstance(exc, errors.ModelRefused) and "retry_after" in exc.data:
        headers = [*headers, (b"retry-after", b"%d" % ceil(exc.data["retry_after"]))]
    responder.send(status, body, headers)


def encode_chunk(data: bytes) -> bytes:
    """Encode one JSON value as an event. Clients of this API expect no event name."""
    return b"data: %b\n\n" % data.translate(_LINE_ENDS)


def encode_stream_failure(exc: errors.ToolgateError) -> bytes:
    """Encode the end of a stream that fails: clients raise this error."""
    return encode_chunk(encode_failure(exc)[1]) + DONE


def encode_response_failure(exc: errors.ToolgateError) -> bytes:
    """The same for the Responses API, whose events have names. Forwarded events are not counted."""
    error = {"code": exc.code, "message": f"{exc}. {exc.hint}", "param": None}
    data = _encode({"type": "error", "sequence_number": 0, **error})
    return b"event: error\ndata: %b\n\n" % data


class ModelApi(NamedTuple):
    """One API of a model's server: its path, and how a stream of it fails."""

    path: str
    encode_broken: Callable[[errors.ToolgateError], bytes]


CHAT: Final = ModelApi(COMPLETIONS_PATH, encode_stream_failure)
RESPONSES: Final = ModelApi("/responses", encode_response_failure)


def _find_error(body: str) -> bytes | None:
    """A body of the shape that clients look for; None for any other."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return body.encode() if isinstance(parsed, dict) and "error" in parsed else None


class ChatEventStream:
    """A response as an event stream.

    It begins with the first bytes: an error before that has its own status.
    """

    def __init__(self, exchange: ChatExchange) -> None:
        self._responder = exchange.responder
        self._headers = [*EVENT_HEADERS, (b"x-request-id", exchange.request_id.encode())]
        self._keepalive_s = exchange.services.keepalive_s
        self._is_writing = False
        self.has_begun = False
        """The status is sent: an error can only break off the stream."""

    async def put(self, data: bytes) -> None:
        """Returns when the client has read most of it."""
        if not data:
            return
        if not self.has_begun:
            self.has_begun = True
            self._responder.start(200, self._headers)
        self._is_writing = True
        try:
            await self._responder.write(data)
        finally:
            self._is_writing = False

    def end(self) -> None:
        self._responder.end()

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        """While the block runs, send comments during silence, so that no proxy closes the connection."""
        task = asyncio.get_running_loop().create_task(self._send_keepalives())
        try:
            yield
        finally:
            task.cancel()  # between two comments, or in one that does not matter

    async def _send_keepalives(self) -> None:
        while True:
            await asyncio.sleep(self._keepalive_s)
            if not self._is_writing:  # a client that reads slowly has data on the way
                await self.put(KEEPALIVE)
