"""Sends prompts to models and knows nothing of their content: bytes go out unchanged, and come back without
our keys. Routes a model's name to its chat upstream, and caches the model lists for a moment.

A request is sent again only if the caller allows it, and only before any part of a response was handed out.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Self

import msgspec

from toolgate.errors import ModelBusy, ModelRefused, ModelUnavailable, ToolgateError
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import UNREADABLE, Members, decode_array, decode_members, encode_raw
from toolgate.model.names import matches_glob
from toolgate.model.servers import HttpEndpoint
from toolgate.telemetry.spans import MAX_SPAN_NAME_CHARS, Span, Tracer, make_span_name
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import ConnectionStale, HttpFailure, HttpLimits
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.models.endpoint import ModelEndpoint, ModelEventStream, TransientFailure

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024  # as MAX_MESSAGE_BYTES of MCP servers
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
TRIAL_S: Final = 10.0  # as a trial of an MCP server has for its start; an operator waits for it
LIST_S: Final = 5.0
"""How long an upstream may take to list its models."""
KEEP_S: Final = 10.0  # a choice: a burst of list requests costs one, and a new model is listed soon
KEEP_FAILED_S: Final = 5.0  # as LIST_S: a dead upstream delays lists at most half of the time
MAX_MODELS: Final = 10_000
"""Models of one upstream."""
_CHECK_URL: Final = "check `base_url`, which usually ends in `/v1`"
_WITHOUT_LIST: Final = f"{_CHECK_URL}; an upstream that lists no models can still serve prompts"
_TRIAL_HINTS: Final = {
    401: "check the secret that `auth_ref` or `headers` name",
    403: "check the permissions of the secret that `auth_ref` or `headers` name",
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


_BegunResponse = tuple[ModelEventStream, ModelResponse | None]
"""A stream, and the whole response if it is no event stream."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a chat upstream."""

    upstream: ChatUpstream
    path: str
    """Below the upstream's URL."""
    body: bytes = b""
    """Empty: GET a document."""
    _: KW_ONLY
    deadline_s: float
    """By the loop's clock."""
    may_retry: bool = False
    """Whether to send it again after a failure without effect."""


@dataclass(slots=True)
class _ModelList:
    """The models that one upstream listed last."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Concurrent callers share one request."""
    upstream: ChatUpstream | None = None
    listed: list[Members] = field(default_factory=list)
    until_s: float = 0.0


class _RequestBody(msgspec.Struct):
    model: str = ""


class Models:
    """All chat upstreams of a node. Streams in flight outlive a change of their record."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        pauses_s: tuple[float, ...] = PAUSES_S,
        tracer: Tracer | None = None,
    ) -> None:
        self._resolver = EndpointResolver(secrets, egress, limits=LIMITS)
        self._pauses_s = pauses_s
        self._endpoints: dict[str, ModelEndpoint] = {}
        self._busy: Counter[str] = Counter()
        self._lists: dict[str, _ModelList] = {}
        self._setup_errors: dict[str, str] = {}
        """By upstream, the setup error that was last logged."""
        self._tracer = tracer
        """Makes spans of requests. A model's server, usually a third party, gets no trace headers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for endpoint in self._endpoints.values():
            endpoint.pool.close()
        self._endpoints.clear()

    def apply(self, upstreams: Mapping[str, ChatUpstream]) -> None:
        """Retire removed and disabled upstreams. Changes of the others take effect at their next request."""
        for upstream_id in tuple(self._endpoints):
            if upstream_id not in upstreams or not upstreams[upstream_id].enabled:
                self._endpoints.pop(upstream_id).retire()
        self._lists = {one: self._lists[one] for one in upstreams if one in self._lists}

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Send a request. Raises ModelBusy, ModelUnavailable, ModelTimedOut and ModelRefused."""
        async with self.stream(request) as response:
            return _require_whole(request.upstream, response)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """As `request`, but the response may be an event stream. Leaving the block drops its unread rest.

        Raises as `request` before the response begins, and as ModelEventStream while it is read.
        """
        upstream_id, most = request.upstream.upstream_id, request.upstream.max_concurrency
        if self._busy[upstream_id] >= most:
            raise ModelBusy(
                f"chat upstream `{upstream_id}` has {most} requests in flight, and allows no more"
            )
        self._busy[upstream_id] += 1
        try:
            with self._trace(request.upstream, request.body):
                async with self._exchange(request) as response:
                    yield response
        finally:
            self._busy[upstream_id] -= 1

    async def models(self, upstreams: Sequence[ChatUpstream], *, deadline_s: float) -> list[Members]:
        """All models that these upstreams list and serve, by the name that reaches each.

        Queries the upstreams concurrently, and leaves out those that fail: a dead one delays a list by at
        most LIST_S, and hides no other's models.
        """
        enabled = sorted((one for one in upstreams if one.enabled), key=lambda one: one.upstream_id)
        lists = await asyncio.gather(*(self._list_cached(one, deadline_s) for one in enabled))
        return merge_models({one.upstream_id: one for one in enabled}, lists)

    async def _list_cached(self, upstream: ChatUpstream, deadline_s: float) -> list[Members]:
        clock = asyncio.get_running_loop().time
        cached = self._lists.setdefault(upstream.upstream_id, _ModelList())
        async with cached.lock:
            if cached.upstream != upstream or cached.until_s <= clock():
                until_s = min(deadline_s, clock() + LIST_S)
                try:
                    cached.listed = await self.models_of(upstream, deadline_s=until_s)
                    cached.until_s = clock() + KEEP_S
                except ToolgateError:
                    # A caller's short deadline is not the upstream's failure.
                    keep_s = KEEP_FAILED_S if clock() < deadline_s else 0.0
                    cached.listed, cached.until_s = [], clock() + keep_s
                cached.upstream = upstream
            return cached.listed

    async def models_of(self, upstream: ChatUpstream, *, deadline_s: float) -> list[Members]:
        """The models that one upstream lists now. Raises as `request`, except ModelBusy: it takes no slot."""
        async with self._exchange(ModelRequest(upstream, "/models", deadline_s=deadline_s)) as response:
            listed = parse_model_list(_require_whole(upstream, response).body)
        if listed is None:
            raise ModelUnavailable(f"chat upstream `{upstream.upstream_id}` did not send a list of models")
        return listed

    def _trace(self, upstream: ChatUpstream, body: bytes) -> AbstractContextManager[Span | None]:
        """A span around one request (semantic conventions of generative AI)."""
        if self._tracer is None:
            return nullcontext()
        try:
            model = msgspec.json.decode(body, type=_RequestBody).model[:MAX_SPAN_NAME_CHARS]
        except UNREADABLE:
            model = ""
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "toolgate.chat_upstream": upstream.upstream_id,
        }
        return self._tracer.span(make_span_name("chat", model), "client", attributes)

    @asynccontextmanager
    async def _exchange(self, request: ModelRequest) -> AsyncIterator[ModelEventStream | ModelResponse]:
        endpoint = self._find_endpoint(request.upstream)
        with endpoint.in_use():
            pauses_s = self._pauses_s if request.may_retry else ()
            stream, response = await _send_with_retries(endpoint, request, pauses_s)
            try:
                yield stream if response is None else response
            finally:
                stream.abandon()

    def _find_endpoint(self, upstream: ChatUpstream) -> ModelEndpoint:
        upstream_id = upstream.upstream_id
        record = HttpEndpoint(url=upstream.base_url, headers=upstream.headers, auth_ref=upstream.auth_ref)
        old = self._endpoints.get(upstream_id)
        try:
            secrets = self._resolver.secrets
            url, headers = secrets.expand(record.url), secrets.build_http_headers(record)
            if old is not None and old.is_current(url, headers):
                return old
            new = ModelEndpoint(upstream_id, self._resolver.resolve(record))
        except StartFailed as exc:
            if self._setup_errors.get(upstream_id) != str(exc):  # log it once, not with every request
                self._setup_errors[upstream_id] = str(exc)
                _logger.warning("chat upstream `%s` cannot be used: %s", upstream_id, exc)
            reason = f"chat upstream `{upstream_id}` cannot be used: its record is not valid on this node"
            hint = "contact an operator: the log of the node shows what is missing"
            raise ModelUnavailable(reason, hint=hint) from exc
        self._setup_errors.pop(upstream_id, None)
        self._endpoints[upstream_id] = new
        if old is not None:
            old.retire()
        return new


def _require_whole(upstream: ChatUpstream, response: ModelEventStream | ModelResponse) -> ModelResponse:
    if isinstance(response, ModelResponse):
        return response
    name = f"chat upstream `{upstream.upstream_id}`"
    raise ModelUnavailable(f"{name} sent an event stream, which was not requested")


async def _send_with_retries(
    endpoint: ModelEndpoint, request: ModelRequest, pauses_s: tuple[float, ...]
) -> _BegunResponse:
    clock = asyncio.get_running_loop().time
    for pause_s in (*pauses_s, None):
        try:
            return await _send_once(endpoint, request)
        except TransientFailure as exc:
            wait_s = 0.0 if pause_s is None else max(pause_s, exc.delay_s)
            if pause_s is None or wait_s > MAX_PAUSE_S or clock() + wait_s >= request.deadline_s:
                raise exc.failure from exc
        await asyncio.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


async def _send_once(
    endpoint: ModelEndpoint, request: ModelRequest, *, is_retry: bool = False
) -> _BegunResponse:
    silence_s = request.upstream.answer_timeout_ms / 1_000
    stream = ModelEventStream(endpoint, silence_s=silence_s, deadline_s=request.deadline_s)
    try:
        until_s = stream.deadline(request.deadline_s)
        encoded = endpoint.encode_request(request.path, request.body)
        stream.attach(*await endpoint.pool.start(encoded, deadline=until_s, sink=stream, is_retry=is_retry))
        response = await stream.wait_for_begin()
    except ConnectionStale:
        # It had no effect: the server had closed the connection before the request arrived.
        return await _send_once(endpoint, request, is_retry=True)
    except HttpFailure as exc:
        raise endpoint.explain_exchange_error(exc, stream) from exc
    if response is None:
        return stream, None
    if not 200 <= response.status < 300:
        raise endpoint.explain_rejection(response)
    return stream, ModelResponse(response.status, response.headers, endpoint.redact(bytes(response.body)))


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
        # Errors hide from callers what a node lacks; an operator who tries a record needs it.
        return str(exc.__cause__), "correct the record, or the environment of the gateway and of every node"
    if isinstance(exc, ModelRefused):
        return str(exc), _TRIAL_HINTS.get(exc.data["status"], "see the message of its server")
    return str(exc), f"{_CHECK_URL}; the gateway must be able to reach it"


def find_upstream(upstreams: Mapping[str, ChatUpstream], model: str) -> tuple[ChatUpstream, str] | None:
    """The upstream for `model` (`<upstream_id>/<model>`, or the first that serves it), and its name there."""
    upstream_id, slash, name = model.partition("/")
    named = upstreams.get(upstream_id)
    if slash and named is not None and serves_model(named, name):
        return named, name
    for _, upstream in sorted(upstreams.items()):
        if serves_model(upstream, model):
            return upstream, model
    return None


def serves_model(upstream: ChatUpstream, model: str) -> bool:
    return upstream.enabled and any(matches_glob(pattern, model) for pattern in upstream.models)


def parse_model_list(body: bytes) -> list[Members] | None:
    """The models with an `id` in a response to `/models`; None if it is not a list."""
    try:
        objects = [decode_members(one) for one in decode_array(decode_members(body)["data"])[:MAX_MODELS]]
    except (*UNREADABLE, KeyError):
        return None
    return [one for one in objects if _parse_id(one)]


def merge_models(upstreams: dict[str, ChatUpstream], lists: Sequence[list[Members]]) -> list[Members]:
    """All models by the name that reaches each: its id, or `<upstream_id>/<id>` if the id reaches another."""
    found: dict[str, Members] = {}
    for upstream, listed in zip(upstreams.values(), lists, strict=True):
        for one in listed:
            model = _parse_id(one)
            if not serves_model(upstream, model):
                continue
            reached = find_upstream(upstreams, model)
            is_own = reached is not None and reached[0] is upstream and reached[1] == model
            name = model if is_own else f"{upstream.upstream_id}/{model}"
            found.setdefault(name, {**one, "id": encode_raw(name)})
    return list(found.values())


def _parse_id(model: Members) -> str:
    try:
        return msgspec.json.decode(model["id"], type=str)
    except (*UNREADABLE, KeyError):
        return ""
