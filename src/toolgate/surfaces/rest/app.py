"""The whole surface: the table of all endpoints, and the application made from it."""

from functools import cache
from typing import Any, Final

import msgspec
from starlette.routing import Router

from toolgate.govern.control import Control
from toolgate.surfaces.rest import directory, discovery, keys, policies, scopes, servers, status
from toolgate.surfaces.rest.answers import JSON, Answer
from toolgate.surfaces.rest.openapi import describe
from toolgate.surfaces.rest.routing import ANYONE, Call, Endpoint, make_router


def rest_app(control: Control) -> Router:
    """The REST surface over `control`, as an ASGI application."""
    return make_router(ENDPOINTS, control)


async def show_document(_control: Control, _call: Call[None]) -> Answer:
    """This document."""
    return Answer(_document())


@cache
def _document() -> bytes:
    """Made when it is first asked for: building the schemas of all models would slow every start."""
    return msgspec.json.encode(describe(ENDPOINTS))


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    *status.ENDPOINTS,
    Endpoint(
        method="GET",
        path="/openapi.json",
        role=ANYONE,
        summary="The OpenAPI document",
        handler=show_document,
        answer=JSON,
    ),
    *discovery.ENDPOINTS,
    *servers.ENDPOINTS,
    *policies.ENDPOINTS,
    *keys.ENDPOINTS,
    *directory.ENDPOINTS,
    *scopes.ENDPOINTS,
)
