"""The interface of traces. The library that makes spans is loaded only if tracing is on.

A span has names, ids, codes and sizes, and never arguments, results, credentials or messages.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol

SpanRole = Literal["server", "client", "internal"]
AttributeValue = str | int | bool
Attributes = Mapping[str, AttributeValue]
NO_ATTRIBUTES: Final[Attributes] = {}

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACE_HEADERS: Final = (TRACEPARENT, TRACESTATE)
"""How a trace is propagated: as HTTP headers, and as members of `_meta` (W3C Trace Context, SEP-414)."""
MAX_SPAN_NAME_CHARS: Final = 128
"""Limit of a name that a caller sent."""


class Span(Protocol):
    """One operation of a trace, before it ends."""

    def note(self, name: str, value: AttributeValue) -> None:
        """Set an attribute. Use the name from the semantic conventions if there is one."""

    def fail(self, code: str) -> None:
        """Mark it as failed. `code` is an error code, never a message."""


class Tracer(Protocol):
    """Makes spans. The current span belongs to the asyncio task, or to the task that started it."""

    @property
    def trace_id(self) -> str:
        """The id of the current trace, in hexadecimal; empty without one."""

    @property
    def is_recording(self) -> bool:
        """Whether the current span has not ended and is sampled."""

    @property
    def current(self) -> Span:
        """The innermost span that has not ended. Ended spans ignore attributes."""

    def span(
        self, name: str, kind: SpanRole = "internal", notes: Attributes = NO_ATTRIBUTES
    ) -> AbstractContextManager[Span]:
        """Run the block in a child of the current span. An exception marks it as failed."""

    def continued(self, carried: Mapping[str, str]) -> AbstractContextManager[None]:
        """Run the block in the client's trace, from `traceparent` and `tracestate`. Ignores invalid ones."""

    def carried(self) -> Mapping[str, str]:
        """The current span as `traceparent` and `tracestate`, for a server."""


class ExportRejected(Exception):
    """A collector rejected a request."""

    def __init__(self, message: str, *, may_retry: bool = True, status: int | None = None) -> None:
        super().__init__(message)
        self.may_retry = may_retry
        """Whether a retry may succeed."""
        self.status = status
        """The HTTP status of the response; None without a response."""


def read_trace_id(tracing: Tracer | None) -> str:
    """The current trace id; empty without tracing."""
    return "" if tracing is None else tracing.trace_id


def open_span(
    tracing: Tracer | None, name: str, kind: SpanRole = "internal", notes: Attributes = NO_ATTRIBUTES
) -> AbstractContextManager[Span | None]:
    """As `Tracer.span`, if there is a tracer."""
    return nullcontext() if tracing is None else tracing.span(name, kind, notes)


def make_span_name(method: str, target: str | None) -> str:
    """The name of a span: the method and its target."""
    return f"{method} {target[:MAX_SPAN_NAME_CHARS]}" if target else method
