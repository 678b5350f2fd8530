"""Traces with OpenTelemetry: spans, their propagation, and the queue for the collector.

Loaded only if tracing is on. A slow or unreachable collector never delays a call: the queue is bounded, and
spans beyond the bound are dropped.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from types import TracebackType
from typing import Final, Self

from opentelemetry import trace as otel
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolgate import __version__
from toolgate.errors import ToolgateError
from toolgate.telemetry import spans

MAX_QUEUED_SPANS: Final = 4_096
"""Spans in the queue; further ones are dropped."""
BATCH: Final = 512  # the default of OpenTelemetry's batch processor
MAX_TRIES: Final = 4  # about five seconds with the pauses: does not block the queue for long
FIRST_DELAY_S: Final = 1.0  # a choice: OTLP requires exponential backoff with jitter, without a number
FINISH_TIMEOUT_S: Final = 2.0
"""The time for sending the last spans of a process."""
MAX_CARRIED_CHARS: Final = 512
"""Limit of a `traceparent` or `tracestate`: the length of `tracestate` that implementations must
propagate."""

_KINDS: Final[Mapping[spans.SpanRole, otel.SpanKind]] = {
    "server": otel.SpanKind.SERVER,
    "client": otel.SpanKind.CLIENT,
    "internal": otel.SpanKind.INTERNAL,
}
_WIRE: Final = TraceContextTextMapPropagator()

_log = logging.getLogger(__name__)

Send = Callable[[bytes], Awaitable[None]]
"""Sends an encoded batch to a collector. Raises ExportRejected."""


def make_resource(instance: str) -> Resource:
    """The resource of this process. The standard variables can extend and override it."""
    itself = {"service.name": "toolgate", "service.version": __version__, "service.instance.id": instance}
    return Resource(itself).merge(OTELResourceDetector().detect())


class _SpanHandle:
    """A span of the library with the interface of `spans`."""

    __slots__ = ("_span",)

    def __init__(self, span: otel.Span) -> None:
        self._span = span

    def note(self, name: str, value: spans.AttributeValue) -> None:
        if self._span.is_recording():
            self._span.set_attribute(name, value)

    def fail(self, code: str) -> None:
        if self._span.is_recording():
            self._span.set_attribute("error.type", code)
            self._span.set_status(otel.StatusCode.ERROR)


class _ActiveSpan(_SpanHandle):
    """A span around a block."""

    __slots__ = ("_token",)

    def __enter__(self) -> Self:
        self._token = attach(otel.set_span_in_context(self._span))
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, exc: BaseException | None, _where: TracebackType | None
    ) -> None:
        if isinstance(exc, ToolgateError):
            self.fail(exc.code)
        elif exc is not None:
            self.fail("cancelled" if isinstance(exc, asyncio.CancelledError) else "internal")
        detach(self._token)
        self._span.end()


class OtelTracer:
    """Makes spans, and queues a sample of them. In a client's trace, the client's sampling decision
    applies."""

    def __init__(self, queue: "SpanQueue", resource: Resource, *, sample: float = 1.0) -> None:
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)), resource=resource, shutdown_on_exit=False
        )
        provider.add_span_processor(queue)
        self._tracer = provider.get_tracer("toolgate", __version__)

    @property
    def trace_id(self) -> str:
        context = otel.get_current_span().get_span_context()
        return otel.format_trace_id(context.trace_id) if context.is_valid else ""

    @property
    def is_recording(self) -> bool:
        return otel.get_current_span().is_recording()

    @property
    def current(self) -> _SpanHandle:
        return _SpanHandle(otel.get_current_span())

    def span(
        self, name: str, kind: spans.SpanRole = "internal", notes: spans.Attributes = spans.NO_ATTRIBUTES
    ) -> _ActiveSpan:
        return _ActiveSpan(
            self._tracer.start_span(
                name,
                kind=_KINDS[kind],
                attributes=notes,
                record_exception=False,
                set_status_on_exception=False,
            )
        )

    @contextmanager
    def continued(self, carried: Mapping[str, str]) -> Iterator[None]:
        bounded = {name: carried[name] for name in (spans.TRACEPARENT, spans.TRACESTATE) if name in carried}
        fits = all(len(value) <= MAX_CARRIED_CHARS for value in bounded.values())
        token = attach(_WIRE.extract(bounded if fits else {}, Context()))
        try:
            yield
        finally:
            detach(token)

    def carried(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        _WIRE.inject(found)
        return found


@dataclass(eq=False)
class SpanQueue(SpanProcessor):
    """The queue of ended spans for the collector. Runs on the event loop."""

    send: Send
    _: KW_ONLY
    every_s: float
    """How long spans are collected, unless a batch is full."""
    retry_s: float = FIRST_DELAY_S
    max_queued: int = MAX_QUEUED_SPANS
    dropped: int = field(default=0, init=False)
    _spans: deque[ReadableSpan] = field(default_factory=deque, init=False)
    _is_due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_failing: bool = field(default=False, init=False)

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if len(self._spans) >= self.max_queued:
            self.dropped += 1
            return
        self._spans.append(span)
        if len(self._spans) >= BATCH:
            self._is_due.set()

    async def run(self) -> None:
        """Send ended spans, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.every_s):
                    await self._is_due.wait()
            self._is_due.clear()
            await self._send_all(MAX_TRIES)

    async def finish(self) -> None:
        """Send the remaining spans, within `FINISH_TIMEOUT_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                await self._send_all(1)

    async def _send_all(self, tries: int) -> None:
        try:
            while self._spans:
                await self._send_batch(tries)
        except Exception:  # no later attempt would succeed, and a process must not wait for its spans
            _log.exception("cannot send spans; dropping them")
            self.dropped += len(self._spans)
            self._spans.clear()

    async def _send_batch(self, tries: int) -> None:
        """Send the oldest spans. They stay in the queue until they are sent or dropped."""
        batch = list(islice(self._spans, BATCH))
        body = await asyncio.to_thread(lambda: encode_spans(batch).SerializeToString())
        if not await self._try(body, tries):
            self.dropped += len(batch)
        for _ in batch:
            self._spans.popleft()

    async def _try(self, body: bytes, tries: int) -> bool:
        delay_s = self.retry_s
        for attempt in range(1, tries + 1):
            try:
                await self.send(body)
            except spans.ExportRejected as exc:
                if not self._is_failing:  # the first failure of an outage
                    _log.warning("cannot send traces to the collector: %s", exc)
                self._is_failing = True
                if not exc.may_retry or attempt == tries:
                    return False
            else:
                if self._is_failing:
                    _log.info("sending traces to the collector again; %d spans were dropped", self.dropped)
                self._is_failing = False
                return True
            await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311 (spreads nodes, guards nothing)
            delay_s *= 2
        return False


@asynccontextmanager
async def open_tracing(
    send: Send, resource: Resource, *, sample: float, every_s: float, retry_s: float = FIRST_DELAY_S
) -> AsyncIterator[OtelTracer]:
    """A tracer whose spans are sent while the block runs, and at its end."""
    queue = SpanQueue(send, every_s=every_s, retry_s=retry_s)
    running = asyncio.create_task(queue.run())
    try:
        yield OtelTracer(queue, resource, sample=sample)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await queue.finish()
