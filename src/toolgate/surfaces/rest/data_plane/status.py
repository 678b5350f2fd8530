"""Whether the gateway serves, and its numbers."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from toolgate import __version__
from toolgate.gateway.auth.identity import reaches
from toolgate.govern.process import GatewayProcess, ReadinessCondition
from toolgate.surfaces.rest.framework.response import HealthAnswer, ReadyAnswer, ReasonGiven, RestResponse
from toolgate.surfaces.rest.framework.routing import ANYONE, RestCall, RestEndpoint
from toolgate.telemetry import CONTENT_TYPE


async def show_health(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
    """Answers as long as the process lives. Needs no key, and without one says nothing of servers."""
    readiness = serving.readiness()
    may_count = call.principal is not None and reaches(call.principal.role, "viewer")
    return RestResponse(
        HealthAnswer(
            status="degraded" if readiness.is_degraded else "ok",
            reasons=_reasons(readiness.conditions),
            version=__version__,
            revision=serving.gateway.snapshot.revision,
            servers=Counter(serving.gateway.servers.load().states.values()) if may_count else None,
            uptime_s=max(0, serving.clock_ms() - serving.started_at_ms) / 1000,
        )
    )


async def show_readiness(serving: GatewayProcess, _call: RestCall[None]) -> RestResponse:
    """Whether calls can be sent here. If not, the code of each reason is one they would be refused with.

    A process that is about to end takes no new connection, and so answers nothing.
    """
    readiness = serving.readiness()
    blocking = [one for one in readiness.conditions if one.blocks]
    return RestResponse(
        ReadyAnswer(
            status="ready" if readiness.is_ready else "not_ready",
            reasons=_reasons(blocking),
            revision=serving.gateway.snapshot.revision,
        ),
        200 if readiness.is_ready else 503,
        headers={} if readiness.is_ready else {"retry-after": "1"},
    )


def _reasons(troubles: Iterable[ReadinessCondition]) -> list[ReasonGiven]:
    return [ReasonGiven(code=one.code, hint=one.hint) for one in troubles]


async def show_metrics(serving: GatewayProcess, _call: RestCall[None]) -> RestResponse:
    """The metrics of this node, as Prometheus reads them."""
    # In a thread: the text of thousands of tools takes longer than the loop may stand still.
    return RestResponse(await asyncio.to_thread(serving.gateway.metrics.capture()))


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    RestEndpoint(
        method="GET",
        path="/healthz",
        role=ANYONE,
        summary="Whether the gateway serves",
        handler=show_health,
        answer=HealthAnswer,
    ),
    RestEndpoint(
        method="GET",
        path="/readyz",
        role=ANYONE,
        summary="Whether calls can be sent here",
        handler=show_readiness,
        answer=ReadyAnswer,
        statuses=(200, 503),
    ),
    RestEndpoint(
        method="GET",
        path="/metrics",
        role="viewer",
        summary="The metrics of this node",
        handler=show_metrics,
        answer=CONTENT_TYPE,
    ),
)
