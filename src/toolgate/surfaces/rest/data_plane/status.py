"""The status of a process: health, readiness, metrics, and protected resource metadata (RFC 9728).

Never shows servers or tasks to a caller without a credential.
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
    """A condition that degrades the gateway or blocks calls."""

    code: str
    """An error code, or `audit_unwritable`."""
    hint: str
    """What to do."""


class HealthResponse(ResponseShape, frozen=True, kw_only=True):
    """The health of the gateway."""

    status: Literal["ok", "degraded"]
    """`degraded`: the gateway serves with restrictions. `/readyz` shows whether it accepts calls."""
    reasons: list[ReasonGiven]
    """Why the gateway is degraded."""
    version: str
    revision: Revision
    """The registry revision served."""
    uptime_s: float
    servers: dict[HealthState, int] | None = None
    """State to the number of servers in it. Null without the role `viewer`."""


class ReadyResponse(ResponseShape, frozen=True, kw_only=True):
    """Whether the gateway accepts calls and enforces the current policy."""

    status: Literal["ready", "not_ready"]
    reasons: list[ReasonGiven]
    """Why the gateway is not ready."""
    revision: Revision


class MetadataResponse(ResponseShape, frozen=True, kw_only=True):
    """Protected resource metadata (RFC 9728): which authorization servers issue tokens for this URL."""

    resource: str
    """The URL of the protected resource, and the audience of its tokens."""
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


@get("/healthz", ANYONE, "Show the health of the gateway")
async def show_health(serving: GatewayProcess, call: RestCall[None]) -> HealthResponse:
    """200 while the process is alive. Needs no key; without one, `servers` is null."""
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


@get("/readyz", ANYONE, "Show the readiness of the gateway", ReadyResponse, statuses=(200, 503))
async def show_readiness(serving: GatewayProcess, _call: RestCall[None]) -> RestResponse:
    """200 if the gateway accepts calls, else 503 with the error codes that calls would fail with.

    A process that is shutting down accepts no connections.
    """
    readiness = serving.readiness()
    blocking = [one for one in readiness.conditions if one.blocks]
    status = "ready" if readiness.is_ready else "not_ready"
    response = ReadyResponse.of(status=status, reasons=blocking, revision=serving.gateway.snapshot.revision)
    if readiness.is_ready:
        return RestResponse(response)
    return RestResponse(response, 503, headers={"retry-after": "1"})


@get("/metrics", "viewer", "Show the metrics of this node", CONTENT_TYPE)
async def show_metrics(serving: GatewayProcess, _call: RestCall[None]) -> bytes:
    """The metrics of this node, in the Prometheus text format."""
    # In a thread: the text of thousands of tools takes longer than the loop may block.
    return await asyncio.to_thread(serving.gateway.metrics.capture())


PATHS: Final = (
    "",
    *(prefix + path for prefix in ("/api/mcp", "/mcp") for path in ("", "/s/{server_id}", "/t/{task_id}")),
)
"""The paths with metadata: the gateway, and every kind of path of the MCP endpoint."""


def _metadata_endpoint(path: str) -> RestEndpoint[None]:
    # The same whether or not a server or task exists: a caller without a token learns nothing from it.
    summary = f"Show protected resource metadata {path}".strip()

    @get(WELL_KNOWN + path, ANYONE, summary, MetadataResponse, errors=(NotFound,))
    async def show_metadata(serving: GatewayProcess, call: RestCall[None]) -> Mapping[str, Any]:
        """The authorization servers whose tokens the gateway accepts. Not found if it accepts keys only."""
        return serving.discovery.metadata(call.base_url, path.format_map(call.ids))

    return show_metadata


METADATA_ENDPOINTS: Final = tuple(map(_metadata_endpoint, PATHS))
