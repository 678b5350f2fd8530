"""Where tokens for this gateway come from: protected resource metadata (RFC 9728), open to anyone.

It is the same whether a server or task exists or not: who has no token yet learns nothing by asking.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from toolgate.errors import InvalidRecord, NotFound
from toolgate.gateway.auth.issuer import WELL_KNOWN
from toolgate.govern.process import GatewayProcess
from toolgate.surfaces.rest.framework.response import MetadataAnswer, RestResponse
from toolgate.surfaces.rest.framework.routing import ANYONE, RestCall, RestEndpoint

PATHS: Final = (
    "",
    *(prefix + path for prefix in ("/api/mcp", "/mcp") for path in ("", "/s/{server_id}", "/t/{task_id}")),
)
"""What has metadata of its own: the gateway, and every kind of path of the MCP door."""


def _metadata_handler(path: str) -> Callable[[GatewayProcess, RestCall[None]], Awaitable[RestResponse]]:
    async def show_metadata(serving: GatewayProcess, call: RestCall[None]) -> RestResponse:
        """Which issuer's tokens are taken here. Not found where the gateway knows only its own keys."""
        return RestResponse(serving.discovery.metadata(call.base_url, path.format_map(call.ids)))

    return show_metadata


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = tuple(
    RestEndpoint(
        method="GET",
        path=WELL_KNOWN + path,
        role=ANYONE,
        summary=f"Where tokens come from {path}".strip(),
        handler=_metadata_handler(path),
        answer=MetadataAnswer,
        errors=(NotFound, InvalidRecord) if "{" in path else (NotFound,),
    )
    for path in PATHS
)
