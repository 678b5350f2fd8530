"""Sends prompts to models and knows nothing of their content: bytes go out unchanged, and come back without
our keys.

A request is sent again only if the caller allows it, and only before any part of a response was handed out.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from ssl import SSLContext
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from toolgate.errors import ModelBusy, ModelRefused, ModelUnavailable, ToolgateError
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import UNREADABLE, Members
from toolgate.model.servers import HttpEndpoint
from toolgate.telemetry.spans import MAX_SPAN_NAME_CHARS, Span, Tracer, make_span_name
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import ConnectionStale, HttpLimits
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.models.endpoint import EXCHANGE_ERRORS, ModelEndpoint, TransientFailure
from toolgate.upstream.models.routing import ModelListCache, parse_model_list
from toolgate.upstream.models.streams import EventIntake, ModelEvent

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
LIMITS: Final = HttpLimits(
    max_connections=10_000,  # each upstream's `max_concurrency` is less
    max_body_bytes=MAX_RESPONSE_BYTES,
    max_pieces=65_536,  # more than one read can hold: models stream small pieces
    yields_streams=False,
)
PAUSES_S: Final = (0.25, 1.0)
"""Before the second and the third attempt, unless the server asks for more."""
MAX_PAUSE_S: Final = 5.0
"""If the server asks for more, the request fails: the caller can do better than wait."""
TRIAL_S: Final = 10.0
_CHECK_URL: Final = "check `base_url`, which mostly ends in `/v1`"
_WITHOUT_LIST: Final = f"{_CHECK_URL}; one that lists no models may be asked all the same"
_TRIAL_HINTS: Final = {
    401: "check the secret that `auth_ref` or `headers` name",
    403: "check what the secret of `auth_ref` or `headers` may do",
    404: _WITHOUT_LIST,
    405: _WITHOUT_LIST,
}

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A whole response with a status of 2xx."""

    status: int
    headers: Mapping[bytes, bytes]
    """Names in lower case."""
    body: bytes


class ModelEventStream:
    """The events of one stream, in order. It ends with the stream, or raises its error."""

    def __init__(self, intake: EventIntake, endpoint: ModelEndpoint) -> None:
        self._intake = intake
        self._endpoint = endpoint
        self.on_event: Callable[[ModelEvent], bool] | None = None
        """Called with each event before it is handed out; returns whether it is."""

    @property
    def waiting_bytes(self) -> int:
        """What has arrived and is not taken yet."""
        return self._intake.waiting_bytes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        """Raises ModelUnavailable and ModelTimedOut."""
        while True:
            try:
                event = await anext(self._intake)
            except EXCHANGE_ERRORS as exc:
                raise self._endpoint.explain_exchange_error(exc, self._intake) from exc
            shown = self._endpoint.redact_event(event)
            if self.on_event is None or self.on_event(shown):
                return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelRequest:
    """One request, its deadline, and the pauses before its retries."""

    path: str
    body: bytes | None = None
    """None: GET a document."""
    deadline_s: float
    pauses_s: tuple[float, ...] = ()


class PromptableModels(Protocol):
    """What a chat needs of `Models`."""

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse: ...

    def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AbstractAsyncContextManager[ModelEventStream | ModelResponse]: ...


class Models:
    """All chat upstreams of a node. Streams in flight outlive a change of their record."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        tls: SSLContext | None = None,
        limits: HttpLimits = LIMITS,
        pauses_s: tuple[float, ...] = PAUSES_S,
        tracer: Tracer | None = None,
    ) -> None:
        """`tls` decides which servers are trusted; by default, the system's authorities do."""
        self._secrets = secrets
        self._resolver = EndpointResolver(secrets, egress, limits=limits, tls=tls)
        self._pauses_s = pauses_s
        self._endpoints: dict[str, ModelEndpoint] = {}
        self._busy: Counter[str] = Counter()
        self._lists = ModelListCache(self.models_of)
        self._setup_errors: dict[str, str] = {}
        """By upstream, the setup error that was last logged."""
        self._tracer = tracer
        """Makes spans of requests. A model's server, usually a third party, gets no trace headers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self._endpoints.values():
            endpoint.pool.close()
        self._endpoints.clear()

    def apply(self, upstreams: Mapping[str, ChatUpstream]) -> None:
        """Retire removed and disabled upstreams. Changes of the others take effect at their next request."""
        for upstream_id in tuple(self._endpoints):
            if upstream_id not in upstreams or not upstreams[upstream_id].enabled:
                self._endpoints.pop(upstream_id).retire()
        self._lists.keep_only(tuple(upstreams))

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse:
        """POST `body` to `path` below the upstream's URL, until `deadline_s` of the loop's clock.

        Raises ModelBusy, ModelUnavailable, ModelTimedOut and ModelRefused.
        """
        async with self.stream(upstream, path, body, deadline_s=deadline_s, may_retry=may_retry) as response:
            return _require_whole(upstream, response)

    @asynccontextmanager
    async def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """As `ask`, where the response may be an event stream. Leaving the block drops what is unread.

        Raises as `ask` before the response begins, and as ModelEventStream while it is read.
        """
        pauses_s = self._pauses_s if may_retry else ()
        request = _ModelRequest(path=path, body=body, deadline_s=deadline_s, pauses_s=pauses_s)
        with self._concurrency_slot(upstream), _trace_request(self._tracer, upstream, body):
            async with self._exchange(upstream, request) as response:
                yield response

    async def get(self, upstream: ChatUpstream, path: str, *, deadline_s: float) -> ModelResponse:
        """GET a document. Does not count against `max_concurrency`. Raises as `ask`, except ModelBusy."""
        async with self._exchange(upstream, _ModelRequest(path=path, deadline_s=deadline_s)) as response:
            return _require_whole(upstream, response)

    async def models(self, upstreams: Sequence[ChatUpstream], *, deadline_s: float) -> list[Members]:
        """All models of these upstreams, by the name that reaches each. Leaves out upstreams that fail."""
        return await self._lists.of_all(upstreams, deadline_s=deadline_s)

    async def models_of(self, upstream: ChatUpstream, *, deadline_s: float) -> list[Members]:
        """The models that one upstream lists now. Raises as `get`."""
        response = await self.get(upstream, "/models", deadline_s=deadline_s)
        listed = parse_model_list(response.body)
        if listed is None:
            raise ModelUnavailable(f"chat upstream `{upstream.upstream_id}` answers with no list of models")
        return listed

    @contextmanager
    def _concurrency_slot(self, upstream: ChatUpstream) -> Iterator[None]:
        upstream_id, most = upstream.upstream_id, upstream.max_concurrency
        if self._busy[upstream_id] >= most:
            raise ModelBusy(f"chat upstream `{upstream_id}` has all {most} requests it may have at once")
        self._busy[upstream_id] += 1
        try:
            yield
        finally:
            self._busy[upstream_id] -= 1

    @asynccontextmanager
    async def _exchange(
        self, upstream: ChatUpstream, request: _ModelRequest
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        endpoint = self._find_endpoint(upstream)
        with endpoint.in_use():
            silence_s = upstream.answer_timeout_ms / 1_000
            intake, response = await _send_with_retries(endpoint, request, silence_s)
            try:
                yield ModelEventStream(intake, endpoint) if response is None else response
            finally:
                intake.abandon()

    def _find_endpoint(self, upstream: ChatUpstream) -> ModelEndpoint:
        """The endpoint with the current record and secrets."""
        upstream_id = upstream.upstream_id
        record = HttpEndpoint(url=upstream.base_url, headers=upstream.headers, auth_ref=upstream.auth_ref)
        old = self._endpoints.get(upstream_id)
        try:
            url, headers = self._secrets.expand(record.url), self._secrets.http_headers(record)
            if old is not None and old.is_current(url, headers):
                return old
            new = ModelEndpoint(upstream_id, self._resolver.resolve(record))
        except StartFailed as exc:
            if self._setup_errors.get(upstream_id) != str(exc):  # log it once, not with every request
                self._setup_errors[upstream_id] = str(exc)
                _logger.warning("chat upstream `%s` cannot be asked: %s", upstream_id, exc)
            raise ModelUnavailable(
                f"chat upstream `{upstream_id}` cannot be asked: its record does not fit this node",
                hint="ask an operator: the log of the node says what is missing",
            ) from exc
        self._setup_errors.pop(upstream_id, None)
        self._endpoints[upstream_id] = new
        if old is not None:
            old.retire()
        return new


class _RequestBody(msgspec.Struct):
    model: str = ""


_decode_request_body = msgspec.json.Decoder(_RequestBody).decode


def _trace_request(
    tracing: Tracer | None, upstream: ChatUpstream, body: bytes
) -> AbstractContextManager[Span | None]:
    """A span around one request (semantic conventions of generative AI)."""
    if tracing is None:
        return nullcontext()
    try:
        model = _decode_request_body(body).model[:MAX_SPAN_NAME_CHARS]
    except UNREADABLE:
        model = ""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "toolgate.chat_upstream": upstream.upstream_id,
    }
    return tracing.span(make_span_name("chat", model), "client", attributes)


def _require_whole(upstream: ChatUpstream, response: ModelEventStream | ModelResponse) -> ModelResponse:
    if isinstance(response, ModelResponse):
        return response
    raise ModelUnavailable(
        f"chat upstream `{upstream.upstream_id}` answers with an event stream, which was not asked for"
    )


async def _send_with_retries(
    endpoint: ModelEndpoint, request: _ModelRequest, silence_s: float
) -> tuple[EventIntake, ModelResponse | None]:
    """Send until a response begins: a stream, for which the response is None, or a whole one."""
    clock = asyncio.get_running_loop().time
    for pause_s in (*request.pauses_s, None):
        try:
            return await _send_once(endpoint, request, silence_s)
        except TransientFailure as exc:
            wait_s = 0.0 if pause_s is None else max(pause_s, exc.delay_s)
            if pause_s is None or wait_s > MAX_PAUSE_S or clock() + wait_s >= request.deadline_s:
                raise exc.failure from exc
        await asyncio.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


async def _send_once(
    endpoint: ModelEndpoint, request: _ModelRequest, silence_s: float, *, is_retry: bool = False
) -> tuple[EventIntake, ModelResponse | None]:
    intake = EventIntake(silence_s=silence_s, deadline_s=request.deadline_s)
    try:
        until_s = intake.deadline(request.deadline_s)
        encoded = endpoint.encode_request(request.path, request.body)
        intake.attach(*await endpoint.pool.start(encoded, deadline=until_s, sink=intake, is_retry=is_retry))
        response = await intake.wait_for_begin()
    except ConnectionStale:
        # It had no effect: the server had closed the connection before the request arrived.
        return await _send_once(endpoint, request, silence_s, is_retry=True)
    except EXCHANGE_ERRORS as exc:
        raise endpoint.explain_exchange_error(exc, intake) from exc
    if response is None:
        return intake, None
    if not 200 <= response.status < 300:
        raise endpoint.explain_rejection(response)
    body = endpoint.redact_body(bytes(response.body))
    return intake, ModelResponse(response.status, response.headers, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """The result of listing an upstream's models once. `error` is empty on success."""

    took_ms: int
    models: tuple[str, ...] = ()
    """All models that it lists, whether or not callers may use them."""
    error: str = ""
    hint: str = ""


TryModels = Callable[[ChatUpstream], Awaitable[ModelTrial]]
"""`try_models`, with the secrets and egress of this process."""


async def try_models(secrets: Secrets, egress: Egress, upstream: ChatUpstream) -> ModelTrial:
    """List the models of `upstream` over a separate connection. Every failure is in the report."""
    began_ns = time.monotonic_ns()
    names: tuple[str, ...] = ()
    error = hint = ""
    try:
        async with Models(secrets, egress) as models:
            deadline_s = asyncio.get_running_loop().time() + TRIAL_S
            listed = await models.models_of(upstream, deadline_s=deadline_s)
        names = tuple(msgspec.json.decode(one["id"], type=str) for one in listed)
    except ToolgateError as exc:
        error, hint = _explain_trial_error(exc)
    took_ms = (time.monotonic_ns() - began_ns) // 1_000_000
    return ModelTrial(took_ms=took_ms, models=names, error=error, hint=hint)


def _explain_trial_error(exc: ToolgateError) -> tuple[str, str]:
    """The error, and what an operator can do: the hints of errors are for callers."""
    if isinstance(exc.__cause__, StartFailed):
        # Callers do not learn what a node lacks; an operator who tries a record must.
        return str(exc.__cause__), "it must be there where the gateway runs, and on every node"
    if isinstance(exc, ModelRefused):
        return str(exc), _TRIAL_HINTS.get(exc.data["status"], "its server says why")
    return str(exc), f"{_CHECK_URL}; it must be reached from where the gateway runs"
