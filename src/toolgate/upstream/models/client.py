"""Asks models, and knows nothing of what is asked: bytes go out as they are, and come back without our keys.

A request is sent again only where the caller allows it, and only before any part of an answer was handed out.

One look at a chat upstream, beside the connections in use, to see whether its record works.
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
from toolgate.telemetry.spans import MAX_SPAN_NAME_CHARS, Span, Tracer, make_span_name
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import ConnectionStale, HttpLimits
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.models import endpoint as failures
from toolgate.upstream.models.endpoint import ModelEndpoint, endpoint_of
from toolgate.upstream.models.routing import ModelListCache, parse_model_list
from toolgate.upstream.models.streams import EventIntake, ModelEvent

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
LIMITS: Final = HttpLimits(
    max_connections=10_000,  # each upstream's `max_concurrency` is less
    max_body_bytes=MAX_RESPONSE_BYTES,
    max_pieces=65_536,  # more than can be read at once: models speak in small pieces
    takes_turns=False,
)
PAUSES_S: Final = (0.25, 1.0)
"""Before the second and the third attempt, unless the server asks for more."""
MAX_PAUSE_S: Final = 5.0
"""A server that asks for more is not asked again: whoever waits can do better."""

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A whole answer, with a status of 2xx."""

    status: int
    headers: Mapping[bytes, bytes]
    """Names in lower case."""
    body: bytes


class ModelEventStream:
    """The events of one stream, in order. It ends with the stream, or raises what ended it."""

    def __init__(self, inflow: EventIntake, outlet: ModelEndpoint) -> None:
        self._inflow = inflow
        self._outlet = outlet
        self.on_event: Callable[[ModelEvent], bool] | None = None
        """Hears of each event before it is handed out, and says whether it is."""

    @property
    def waiting_bytes(self) -> int:
        """What has come and is not taken yet."""
        return self._inflow.waiting_bytes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        """Raises ModelUnavailable and ModelTimedOut."""
        while True:
            try:
                event = await anext(self._inflow)
            except failures.EXCHANGE_ERRORS as exc:
                raise failures.explain_exchange_error(exc, self._outlet, self._inflow) from exc
            shown = self._outlet.hide(event)
            if self.on_event is None or self.on_event(shown):
                return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelRequest:
    """What is asked, until when, and how often."""

    path: str
    body: bytes | None = None
    """None: a document is asked for."""
    deadline_s: float
    pauses_s: tuple[float, ...] = ()

    def request(self, outlet: ModelEndpoint) -> bytes:
        return outlet.get(self.path) if self.body is None else outlet.post(self.path, self.body)


class PromptableModels(Protocol):
    """Models, as far as a chat asks them. See `Models`."""

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse: ...

    def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AbstractAsyncContextManager[ModelEventStream | ModelResponse]: ...


class Models:
    """Every chat upstream of a node. Streams under way outlive a change of their record."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        tls: SSLContext | None = None,
        limits: HttpLimits = LIMITS,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        """`tls` decides which servers are trusted; without it, the system's authorities do."""
        self._secrets = secrets
        self._reach = EndpointResolver(secrets, egress, limits=limits, tls=tls)
        self._pauses_s = pauses_s
        self._outlets: dict[str, ModelEndpoint] = {}
        self._busy: Counter[str] = Counter()
        self._lists = ModelListCache(self.models_of)
        self._troubles: dict[str, str] = {}
        """Why an upstream cannot be asked at all, as it was last logged."""
        self.tracing: Tracer | None = None
        """What makes spans of requests. A model's server, mostly somebody else's, is told nothing of them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for outlet in self._outlets.values():
            outlet.close()
        self._outlets.clear()

    def apply(self, upstreams: Mapping[str, ChatUpstream]) -> None:
        """Part with upstreams that are gone or off. Changed ones are seen when they are asked."""
        for upstream_id in [
            one for one in self._outlets if one not in upstreams or not upstreams[one].enabled
        ]:
            self._outlets.pop(upstream_id).retire()
        self._lists.forget(tuple(upstreams))

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse:
        """The answer to `body` at `path` below the upstream's URL, by `deadline_s` of the loop's clock.

        Raises ModelBusy, ModelUnavailable, ModelTimedOut and ModelRefused.
        """
        async with self.stream(upstream, path, body, deadline_s=deadline_s, may_retry=may_retry) as answer:
            return _require_whole(upstream, answer)

    @asynccontextmanager
    async def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """The same, where the answer may be an event stream. Leaving it gives up what is not read.

        Raises as `ask` before it begins, and as ModelEvents while it is read.
        """
        order = _ModelRequest(
            path=path, body=body, deadline_s=deadline_s, pauses_s=self._pauses_s if may_retry else ()
        )
        with self._place(upstream), _trace_request(self.tracing, upstream, body):
            async with self._answering(upstream, order) as answer:
                yield answer

    async def get(self, upstream: ChatUpstream, path: str, *, deadline_s: float) -> ModelResponse:
        """The document at `path`. Takes no place of `max_concurrency`. Raises as `ask`, but for ModelBusy."""
        async with self._answering(upstream, _ModelRequest(path=path, deadline_s=deadline_s)) as answer:
            return _require_whole(upstream, answer)

    async def models(self, upstreams: Sequence[ChatUpstream], *, deadline_s: float) -> list[Members]:
        """What they all serve, each by the name that reaches it. Those that do not answer are left out."""
        return await self._lists.of_all(upstreams, deadline_s=deadline_s)

    async def models_of(self, upstream: ChatUpstream, *, deadline_s: float) -> list[Members]:
        """What one upstream says it serves, asked now. Raises as `get`."""
        answer = await self.get(upstream, "/models", deadline_s=deadline_s)
        listed = parse_model_list(answer.body)
        if listed is None:
            raise ModelUnavailable(f"chat upstream `{upstream.upstream_id}` answers with no list of models")
        return listed

    @contextmanager
    def _place(self, upstream: ChatUpstream) -> Iterator[None]:
        upstream_id = upstream.upstream_id
        if self._busy[upstream_id] >= upstream.max_concurrency:
            most = upstream.max_concurrency
            raise ModelBusy(f"chat upstream `{upstream_id}` has all {most} requests it may have at once")
        self._busy[upstream_id] += 1
        try:
            yield
        finally:
            self._busy[upstream_id] -= 1

    @asynccontextmanager
    async def _answering(
        self, upstream: ChatUpstream, order: _ModelRequest
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        outlet = await self._outlet(upstream)
        with outlet.in_use():
            inflow, answer = await _send_with_retries(outlet, order, upstream.answer_timeout_ms / 1_000)
            try:
                yield ModelEventStream(inflow, outlet) if answer is None else answer
            finally:
                inflow.abandon()

    async def _outlet(self, upstream: ChatUpstream) -> ModelEndpoint:
        """The one that shows what the record and the secrets say now."""
        upstream_id = upstream.upstream_id
        endpoint = endpoint_of(upstream)
        try:
            outlet = self._outlets.get(upstream_id)
            shown = self._secrets.expand(endpoint.url), self._secrets.http_headers(endpoint)
            if outlet is not None and outlet.is_for(*shown):
                return outlet
            fresh = ModelEndpoint(upstream_id, await self._reach.endpoint(endpoint))
        except StartFailed as exc:
            self._tell(upstream_id, str(exc))
            raise failures.explain_setup_error(upstream_id) from exc
        self._troubles.pop(upstream_id, None)
        replaced = self._outlets.get(upstream_id)
        self._outlets[upstream_id] = fresh
        if replaced is not None:
            replaced.retire()
        return fresh

    def _tell(self, upstream_id: str, trouble: str) -> None:
        """Once, not with every request."""
        if self._troubles.get(upstream_id) != trouble:
            self._troubles[upstream_id] = trouble
            _logger.warning("chat upstream `%s` cannot be asked: %s", upstream_id, trouble)


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
    notes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "toolgate.chat_upstream": upstream.upstream_id,
    }
    return tracing.span(make_span_name("chat", model), "client", notes)


def _require_whole(upstream: ChatUpstream, answer: ModelEventStream | ModelResponse) -> ModelResponse:
    if isinstance(answer, ModelResponse):
        return answer
    raise ModelUnavailable(
        f"chat upstream `{upstream.upstream_id}` answers with an event stream, which was not asked for"
    )


async def _send_with_retries(
    outlet: ModelEndpoint, order: _ModelRequest, silence_s: float
) -> tuple[EventIntake, ModelResponse | None]:
    """Ask until an answer begins: a stream, for which None stands, or a whole one."""
    clock = asyncio.get_running_loop().time
    for pause_s in (*order.pauses_s, None):
        try:
            return await _send_once(outlet, order, silence_s)
        except failures.TransientFailure as exc:
            wait_s = 0.0 if pause_s is None else max(pause_s, exc.asked_s)
            if pause_s is None or wait_s > MAX_PAUSE_S or clock() + wait_s >= order.deadline_s:
                raise exc.failure from exc
        await asyncio.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


async def _send_once(
    outlet: ModelEndpoint, order: _ModelRequest, silence_s: float, *, is_afresh: bool = False
) -> tuple[EventIntake, ModelResponse | None]:
    inflow = EventIntake(silence_s=silence_s, deadline_s=order.deadline_s)
    try:
        until_s = inflow.deadline(order.deadline_s)
        request = order.request(outlet)
        inflow.attach(*await outlet.pool.start(request, deadline=until_s, sink=inflow, is_afresh=is_afresh))
        answer = await inflow.begun()
    except ConnectionStale:
        # Nothing came of it: the server had ended the connection when the request was on its way.
        return await _send_once(outlet, order, silence_s, is_afresh=True)
    except failures.EXCHANGE_ERRORS as exc:
        raise failures.explain_exchange_error(exc, outlet, inflow) from exc
    if answer is None:
        return inflow, None
    if not 200 <= answer.status < 300:
        raise failures.explain_rejection(outlet, answer)
    return inflow, ModelResponse(answer.status, answer.headers, outlet.hide_in(bytes(answer.body)))


TRIAL_S: Final = 10.0
_CHECK_URL: Final = "check `base_url`, which mostly ends in `/v1`"
_WITHOUT_LIST: Final = f"{_CHECK_URL}; one that lists no models may be asked all the same"
_HINTS: Final = {
    401: "check the secret that `auth_ref` or `headers` name",
    403: "check what the secret of `auth_ref` or `headers` may do",
    404: _WITHOUT_LIST,
    405: _WITHOUT_LIST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """What came of asking an upstream for its models once. `error` is empty when all went well."""

    took_ms: int
    models: tuple[str, ...] = ()
    """All that it lists, whether or not callers get them."""
    error: str = ""
    hint: str = ""


TryModels = Callable[[ChatUpstream], Awaitable[ModelTrial]]
"""`try_models`, with what this process is given."""


async def try_models(secrets: Secrets, egress: Egress, upstream: ChatUpstream) -> ModelTrial:
    """Ask for the models of `upstream` over a connection of its own. Whatever goes wrong is in the report."""
    began_ns = time.monotonic_ns()
    names: tuple[str, ...] = ()
    error = hint = ""
    try:
        async with Models(secrets, egress) as models:
            deadline_s = asyncio.get_running_loop().time() + TRIAL_S
            listed = await models.models_of(upstream, deadline_s=deadline_s)
        names = tuple(msgspec.json.decode(one["id"], type=str) for one in listed)
    except ToolgateError as exc:
        error, hint = _explain(exc)
    return ModelTrial(
        took_ms=(time.monotonic_ns() - began_ns) // 1_000_000, models=names, error=error, hint=hint
    )


def _explain(exc: ToolgateError) -> tuple[str, str]:
    """What went wrong, and what an operator can do: the hints of errors are for callers."""
    if isinstance(exc.__cause__, StartFailed):
        # Callers are not told what a node lacks; who tries a record has to be.
        return str(exc.__cause__), "it must be there where the gateway runs, and on every node"
    if isinstance(exc, ModelRefused):
        return str(exc), _HINTS.get(exc.data["status"], "its server says why")
    return str(exc), f"{_CHECK_URL}; it must be reached from where the gateway runs"
