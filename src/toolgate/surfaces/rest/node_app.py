"""The endpoints of every process that serves, nodes included, and the one that shows the OpenAPI document.

Never imports what governs: a node would wait for it at its start, and never use it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from toolgate.govern.process import GatewayProcess
from toolgate.surfaces.rest.data_plane import calls, connect, explain, scopes, status
from toolgate.surfaces.rest.framework.openapi import describe_api
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import JSON
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint, get


def add_openapi_endpoint(endpoints: Sequence[RestEndpoint[Any]]) -> tuple[RestEndpoint[Any], ...]:
    """`endpoints`, and the one that shows the document of them all."""

    @get("/openapi.json", ANYONE, "The OpenAPI document", JSON)
    async def show_document(_serving: GatewayProcess, _call: RestCall[None]) -> bytes:
        """This document."""
        return encode_document()

    @cache
    def encode_document() -> bytes:
        """Encoded on the first request: the schemas of all models would slow every start."""
        return msgspec.json.encode(describe_api(table))

    table = (show_document, *endpoints)
    return table


DATA_PLANE_ENDPOINTS: Final = (
    *status.ENDPOINTS,
    *scopes.ENDPOINTS,
    *explain.ENDPOINTS,
    *connect.ENDPOINTS,
    *calls.ENDPOINTS,
)
NODE_ENDPOINTS: Final = add_openapi_endpoint(DATA_PLANE_ENDPOINTS)
