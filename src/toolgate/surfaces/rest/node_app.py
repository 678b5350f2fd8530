"""What every process that serves answers, whether it governs or not: all there is on a node.

Nothing of what governs is loaded here: a node would wait for it at its start, and never use it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp

from toolgate.govern.process import GatewayProcess
from toolgate.surfaces.rest.data_plane import calls, connect, discovery, scopes, status
from toolgate.surfaces.rest.framework.openapi import describe_api
from toolgate.surfaces.rest.framework.response import JSON, RestResponse
from toolgate.surfaces.rest.framework.routing import ANYONE, RestCall, RestEndpoint, build_router


def node_app(serving: GatewayProcess, *, elsewhere: str) -> ASGIApp:
    """The REST surface of a process that only serves."""
    return build_router(NODE_ENDPOINTS, serving, elsewhere=elsewhere)


def add_openapi_endpoint(endpoints: Sequence[RestEndpoint[Any]]) -> tuple[RestEndpoint[Any], ...]:
    """`endpoints`, and the one that shows the document of them all."""

    async def show_document(_serving: GatewayProcess, _call: RestCall[None]) -> RestResponse:
        """This document."""
        return RestResponse(encoded())

    @cache
    def encoded() -> bytes:
        """Made when it is first asked for: building the schemas of all models would slow every start."""
        return msgspec.json.encode(describe_api(table))

    own = RestEndpoint(
        method="GET",
        path="/openapi.json",
        role=ANYONE,
        summary="The OpenAPI document",
        handler=show_document,
        answer=JSON,
    )
    table = (own, *endpoints)
    return table


DATA_PLANE_ENDPOINTS: Final = (
    *status.ENDPOINTS,
    *discovery.ENDPOINTS,
    *scopes.ENDPOINTS,
    *connect.ENDPOINTS,
    *calls.ENDPOINTS,
)
NODE_ENDPOINTS: Final = add_openapi_endpoint(DATA_PLANE_ENDPOINTS)
