"""Traces that are kept in memory, as a collector would get them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.scenarios.collector import Collector, Span
from toolgate.telemetry.tracing import OtelTracer, make_resource, open_tracing


@dataclass
class Traced:
    """What makes spans, and those that were sent."""

    tracing: OtelTracer
    collector: Collector = field(default_factory=Collector)

    @property
    def spans(self) -> list[Span]:
        """Once the block of `open_traced` has ended, all of them."""
        return self.collector.spans


@asynccontextmanager
async def open_traced(sample: float = 1.0) -> AsyncIterator[Traced]:
    collector = Collector()

    async def send(body: bytes) -> None:
        collector.take("/v1/traces", body, {})

    async with open_tracing(send, make_resource("here"), sample=sample, every_s=0.01) as tracing:
        yield Traced(tracing, collector)
