"""Whether the gateway serves, and its numbers."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from toolgate import __version__
from toolgate.gateway.roles import reaches
from toolgate.govern.process import Serving, Trouble
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import ANYONE, Call, Endpoint
from toolgate.surfaces.rest.shapes import HealthAnswer, ReadyAnswer, ReasonGiven
from toolgate.telemetry import CONTENT_TYPE


async def show_health(serving: Serving, call: Call[None]) -> Answer:
    """Answers as long as the process lives. Needs no key, and without one says nothing of servers."""
    standing = serving.troubles()
    may_count = call.principal is not None and reaches(call.principal.role, "viewer")
    return Answer(
        HealthAnswer(
            status="degraded" if standing.is_degraded else "ok",
            reasons=_reasons(standing.troubles),
            version=__version__,
            revision=serving.gateway.snapshot.revision,
            servers=Counter(serving.gateway.servers.load().states.values()) if may_count else None,
            uptime_s=max(0, serving.clock_ms() - serving.started_at_ms) / 1000,
        )
    )


async def show_readiness(serving: Serving, _call: Call[None]) -> Answer:
    """Whether calls can be sent here. If not, the code of each reason is one they would be refused with.

    A process that is about to end takes no new connection, and so answers nothing.
    """
    standing = serving.troubles()
    blocking = [one for one in standing.troubles if one.blocks]
    return Answer(
        ReadyAnswer(
            status="ready" if standing.is_ready else "not_ready",
            reasons=_reasons(blocking),
            revision=serving.gateway.snapshot.revision,
        ),
        200 if standing.is_ready else 503,
        headers={} if standing.is_ready else {"retry-after": "1"},
    )


def _reasons(troubles: Iterable[Trouble]) -> list[ReasonGiven]:
    return [ReasonGiven(code=one.code, hint=one.hint) for one in troubles]


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
        statuses=(200, 503),
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
