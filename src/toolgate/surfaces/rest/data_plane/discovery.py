"""Where tokens for this gateway come from: protected resource metadata (RFC 9728), open to anyone.

It is the same whether a server or task exists or not: who has no token yet learns nothing by asking.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from toolgate.errors import InvalidRecord, NotFound
from toolgate.gateway.discovery import WELL_KNOWN
from toolgate.govern.process import Serving
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import ANYONE, Call, Endpoint
from toolgate.surfaces.rest.shapes import MetadataAnswer

PATHS: Final = (
    "",
    *(prefix + path for prefix in ("/api/mcp", "/mcp") for path in ("", "/s/{server_id}", "/t/{task_id}")),
)
"""What has metadata of its own: the gateway, and every kind of path of the MCP door."""


def _shows(path: str) -> Callable[[Serving, Call[None]], Awaitable[Answer]]:
    async def show_metadata(serving: Serving, call: Call[None]) -> Answer:
        """Which issuer's tokens are taken here. Not found where the gateway knows only its own keys."""
        if serving.discovery is None:
            raise NotFound("this gateway takes no tokens", hint="call it with one of its own keys")
        return Answer(serving.discovery.metadata(call.base_url, path.format_map(call.ids)))

    return show_metadata


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = tuple(
    Endpoint(
        method="GET",
        path=WELL_KNOWN + path,
        role=ANYONE,
        summary=f"Where tokens come from {path}".strip(),
        handler=_shows(path),
        answer=MetadataAnswer,
        errors=(NotFound, InvalidRecord) if "{" in path else (NotFound,),
    )
    for path in PATHS
)
