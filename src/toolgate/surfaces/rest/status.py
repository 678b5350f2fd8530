"""Whether the gateway serves, and its numbers."""

import asyncio
from collections import Counter
from typing import Any, Final

from toolgate import __version__
from toolgate.errors import NotReady
from toolgate.govern.control import Serving
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.routing import ANYONE, Call, Endpoint
from toolgate.surfaces.rest.shapes import HealthAnswer, ReadyAnswer
from toolgate.telemetry import CONTENT_TYPE


async def show_health(serving: Serving, _call: Call[None]) -> Answer:
    """Answers once the gateway serves. Needs no key, and names no server."""
    states = Counter(health.state for health in serving.gateway.servers.health().values())
    standing = serving.standing()
    return Answer(
        HealthAnswer(
            status="ok",
            version=__version__,
            revision=serving.gateway.snapshot.revision,
            servers=dict(states),
            uptime_s=max(0, serving.clock_ms() - serving.started_at_ms) / 1000,
            degraded=standing.is_degraded,
            degraded_by=standing.degraded_by,
        )
    )


async def show_readiness(serving: Serving, _call: Call[None]) -> Answer:
    """Whether calls can be sent here. If not, `data.reason` is the code they would be refused with."""
    standing = serving.standing()
    if standing.obstacle is not None:
        raise NotReady("this process cannot serve calls for now", data={"reason": standing.obstacle})
    return Answer(
        ReadyAnswer(status="ready", revision=serving.gateway.snapshot.revision, degraded=standing.is_degraded)
    )


async def show_metrics(serving: Serving, _call: Call[None]) -> Answer:
    """The metrics of this node, as Prometheus reads them."""
    # In a thread: the text of thousands of tools takes longer than the loop may stand still.
    return Answer(await asyncio.to_thread(serving.gateway.metrics.capture()))


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
        path="/readyz",
        role=ANYONE,
        summary="Whether calls can be sent here",
        handler=show_readiness,
        answer=ReadyAnswer,
        errors=(NotReady,),
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
