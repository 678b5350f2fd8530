"""What a process says about itself: health, readiness, metrics, and whose tokens it takes (RFC 9728).

Never tells a caller without a credential anything about servers or tasks.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

from toolgate import __version__
from toolgate.errors import NotFound
from toolgate.gateway.auth.identity import reaches
from toolgate.gateway.auth.issuer import WELL_KNOWN
from toolgate.govern.process import GatewayProcess
from toolgate.model.reports import HealthState
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint, get
from toolgate.telemetry import CONTENT_TYPE


class ReasonGiven(ResponseShape, frozen=True, kw_only=True):
    """Why something is not as it should be."""

    code: str
    """One of the error codes, or `audit_unwritable`."""
    hint: str
    """What to do."""


class HealthResponse(ResponseShape, frozen=True, kw_only=True):
    """Whether the gateway serves, and what."""

    status: Literal["ok", "degraded"]
    """`degraded`: it goes on as far as it can. `/readyz` says whether calls can be sent to it."""
    reasons: list[ReasonGiven]
    """Why it is degraded."""
    version: str
    revision: Revision
    """The registry revision served."""
    uptime_s: float
    servers: dict[HealthState, int] | None = None
    """How many servers are in each state that any is in: for the role `viewer` and above."""


class ReadyResponse(ResponseShape, frozen=True, kw_only=True):
    """Whether the gateway answers every caller as its policy says."""

    status: Literal["ready", "not_ready"]
    reasons: list[ReasonGiven]
    """Why it is not."""
    revision: Revision


class MetadataResponse(ResponseShape, frozen=True, kw_only=True):
    """Where tokens come from (RFC 9728)."""

    resource: str
    """What the metadata is of; tokens are for it."""
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


@get("/healthz", ANYONE, "Whether the gateway serves")
async def show_health(serving: GatewayProcess, call: RestCall[None]) -> HealthResponse:
    """Answers as long as the process lives. Needs no key, and without one says nothing of servers."""
    readiness = serving.readiness()
    may_count = call.principal is not None and reaches(call.principal.role, "viewer")
    return HealthResponse.of(
        status="degraded" if readiness.is_degraded else "ok",
        reasons=readiness.conditions,
        version=__version__,
        revision=serving.gateway.snapshot.revision,
        servers=Counter(serving.gateway.servers.load().states.values()) if may_count else None,
        uptime_s=max(0, serving.clock_ms() - serving.started_at_ms) / 1000,
    )


@get("/readyz", ANYONE, "Whether calls can be sent here", ReadyResponse, statuses=(200, 503))
async def show_readiness(serving: GatewayProcess, _call: RestCall[None]) -> RestResponse:
    """Whether calls can be sent here. If not, the code of each reason is one they would be refused with.

    A process that is about to end takes no new connection, and so answers nothing.
    """
    readiness = serving.readiness()
    blocking = [one for one in readiness.conditions if one.blocks]
    status = "ready" if readiness.is_ready else "not_ready"
    response = ReadyResponse.of(status=status, reasons=blocking, revision=serving.gateway.snapshot.revision)
    if readiness.is_ready:
        return RestResponse(response)
    return RestResponse(response, 503, headers={"retry-after": "1"})


@get("/metrics", "viewer", "The metrics of this node", CONTENT_TYPE)
async def show_metrics(serving: GatewayProcess, _call: RestCall[None]) -> bytes:
    """The metrics of this node, as Prometheus reads them."""
    # In a thread: the text of thousands of tools takes longer than the loop may stand still.
    return await asyncio.to_thread(serving.gateway.metrics.capture())


PATHS: Final = (
    "",
    *(prefix + path for prefix in ("/api/mcp", "/mcp") for path in ("", "/s/{server_id}", "/t/{task_id}")),
)
"""What has metadata of its own: the gateway, and every kind of path of the MCP door."""


def _metadata_endpoint(path: str) -> RestEndpoint[None]:
    # The same whether a server or task exists or not: a caller without a token learns nothing by asking.
    summary = f"Where tokens come from {path}".strip()

    @get(WELL_KNOWN + path, ANYONE, summary, MetadataResponse, errors=(NotFound,))
    async def show_metadata(serving: GatewayProcess, call: RestCall[None]) -> Mapping[str, Any]:
        """Which issuer's tokens are taken here. Not found where the gateway knows only its own keys."""
        return serving.discovery.metadata(call.base_url, path.format_map(call.ids))

    return show_metadata


METADATA_ENDPOINTS: Final = tuple(map(_metadata_endpoint, PATHS))
