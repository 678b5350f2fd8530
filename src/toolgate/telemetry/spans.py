"""What the program knows of traces. The library that makes them is not named here: it loads where they are
on.

A span never holds arguments, results, credentials or messages: names, ids, codes and sizes.
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
"""How a trace is handed on: as headers of HTTP, and as members of `_meta` (W3C Trace Context, SEP-414)."""
MAX_SPAN_NAME_CHARS: Final = 128
"""Of what callers write, in the name of a span or a note."""


class Span(Protocol):
    """One step of a trace, while it is taken."""

    def note(self, name: str, value: AttributeValue) -> None:
        """Say something more of it, by the semantic conventions where they have a name for that."""

    def fail(self, code: str) -> None:
        """It did not go well. `code` is one of a known few, never a message."""


class Tracer(Protocol):
    """Makes spans. Which one is current goes by the task, and by whoever started that."""

    @property
    def trace_id(self) -> str:
        """Of the current trace, in hexadecimal; empty where there is none."""

    @property
    def is_recording(self) -> bool:
        """Whether the current span has not ended, and is not one of those that are left out."""

    @property
    def current(self) -> Span:
        """The span that was begun last and has not ended. One that has ended takes no notes any more."""

    def span(
        self, name: str, kind: SpanRole = "internal", notes: Attributes = NO_ATTRIBUTES
    ) -> AbstractContextManager[Span]:
        """The block is one step, under the current span. What is raised from it makes it a failure."""

    def continued(self, carried: Mapping[str, str]) -> AbstractContextManager[None]:
        """The block belongs to the trace of whoever asked, as `traceparent` and `tracestate` say.

        What is not well formed is as good as nothing.
        """

    def carried(self) -> Mapping[str, str]:
        """The current span as `traceparent` and `tracestate`, for whoever is asked."""


class ExportRejected(Exception):
    """A collector did not take what it was sent."""

    def __init__(self, message: str, *, may_retry: bool = True, status: int | None = None) -> None:
        super().__init__(message)
        self.may_retry = may_retry
        """Whether the same may be taken later."""
        self.status = status
        """Of its answer; None where there was none."""


def read_trace_id(tracing: Tracer | None) -> str:
    """Of what happens now; empty where nothing is traced."""
    return "" if tracing is None else tracing.trace_id


def open_span(
    tracing: Tracer | None, name: str, kind: SpanRole = "internal", notes: Attributes = NO_ATTRIBUTES
) -> AbstractContextManager[Span | None]:
    """As `Tracing.span`, where there may be none."""
    return nullcontext() if tracing is None else tracing.span(name, kind, notes)


def make_span_name(method: str, target: str | None) -> str:
    """What a span is called: what is done, and with which of few things."""
    return f"{method} {target[:MAX_SPAN_NAME_CHARS]}" if target else method
