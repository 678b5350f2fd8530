"""What every process that serves answers, whether it governs or not: all there is on a node.

Nothing of what governs is loaded here: a node would wait for it at its start, and never use it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp

from toolgate.govern.process import Serving
from toolgate.surfaces.rest.data_plane import calls, connect, discovery, scopes, status
from toolgate.surfaces.rest.framework.openapi import describe
from toolgate.surfaces.rest.framework.response import JSON, Answer
from toolgate.surfaces.rest.framework.routing import ANYONE, Call, Endpoint, make_router


def node_app(serving: Serving, *, elsewhere: str) -> ASGIApp:
    """The REST surface of a process that only serves."""
    return make_router(NODE_ENDPOINTS, serving, elsewhere=elsewhere)


def documented(endpoints: Sequence[Endpoint[Any]]) -> tuple[Endpoint[Any], ...]:
    """`endpoints`, and the one that shows the document of them all."""

    async def show_document(_serving: Serving, _call: Call[None]) -> Answer:
        """This document."""
        return Answer(encoded())

    @cache
    def encoded() -> bytes:
        """Made when it is first asked for: building the schemas of all models would slow every start."""
        return msgspec.json.encode(describe(table))

    own = Endpoint(
        method="GET",
        path="/openapi.json",
        role=ANYONE,
        summary="The OpenAPI document",
        handler=show_document,
        answer=JSON,
    )
    table = (own, *endpoints)
    return table


SERVING: Final = (
    *status.ENDPOINTS,
    *discovery.ENDPOINTS,
    *scopes.ENDPOINTS,
    *connect.ENDPOINTS,
    *calls.ENDPOINTS,
)
NODE_ENDPOINTS: Final = documented(SERVING)
