"""Whether the gateway serves, and its numbers."""

import asyncio
from collections import Counter
from typing import Any, Final

from toolgate import __version__
from toolgate.govern.control import Control
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.routing import ANYONE, Call, Endpoint
from toolgate.surfaces.rest.shapes import HealthAnswer
from toolgate.telemetry import CONTENT_TYPE


async def show_health(control: Control, _call: Call[None]) -> Answer:
    """Answers once the gateway serves. Needs no key, and names no server."""
    states = Counter(health.state for health in control.gateway.pool.health().values())
    return Answer(
        HealthAnswer(
            status="ok",
            version=__version__,
            revision=control.gateway.snapshot.revision,
            servers=dict(states),
            uptime_s=max(0, control.clock_ms() - control.started_at_ms) / 1000,
        )
    )


async def show_metrics(control: Control, _call: Call[None]) -> Answer:
    """The metrics of this node, as Prometheus reads them."""
    # In a thread: the text of thousands of tools takes longer than the loop may stand still.
    return Answer(await asyncio.to_thread(control.gateway.metrics.capture()))


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/healthz",
        role=ANYONE,
        summary="Whether the gateway serves",
        handler=show_health,
        answer=HealthAnswer,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        role="viewer",
        summary="The metrics of this node",
        handler=show_metrics,
        answer=CONTENT_TYPE,
    ),
)
