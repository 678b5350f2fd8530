"""The whole surface: the tables of all endpoints, and the applications made from them."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp

from toolgate.govern.control import Control, Serving
from toolgate.surfaces.rest import (
    activity,
    approvals,
    audit,
    audit_export,
    backups,
    budgets,
    calls,
    catalog,
    changes,
    chat_upstreams,
    connecting,
    directory,
    discovery,
    imports,
    invocations,
    keys,
    learning,
    logins,
    matches,
    me,
    modules,
    nodes,
    official,
    packages,
    pins,
    policies,
    scopes,
    servers,
    status,
    tokens,
    trials,
    uploads,
    watch,
)
from toolgate.surfaces.rest.answers import JSON, Answer
from toolgate.surfaces.rest.openapi import describe
from toolgate.surfaces.rest.routing import ANYONE, SEE_DOCUMENT, Call, Endpoint, make_router


def rest_app(control: Control, *, elsewhere: str = SEE_DOCUMENT) -> ASGIApp:
    """The REST surface of a process that governs. `elsewhere` is a hint to who asks for what is not there."""
    return make_router(ENDPOINTS, control, elsewhere=elsewhere)


def node_app(serving: Serving, *, elsewhere: str) -> ASGIApp:
    """That of a process that only serves."""
    return make_router(NODE_ENDPOINTS, serving, elsewhere=elsewhere)


def _documented(endpoints: Sequence[Endpoint[Any]]) -> tuple[Endpoint[Any], ...]:
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


_SERVING: Final = (
    *status.ENDPOINTS,
    *discovery.ENDPOINTS,
    *scopes.ENDPOINTS,
    *connecting.ENDPOINTS,
    *calls.ENDPOINTS,
)
NODE_ENDPOINTS: Final = _documented(_SERVING)
ENDPOINTS: Final = _documented(
    (
        *_SERVING,
        *me.ENDPOINTS,
        *servers.ENDPOINTS,
        *trials.ENDPOINTS,
        *logins.ENDPOINTS,
        *imports.ENDPOINTS,
        *catalog.ENDPOINTS,
        *official.ENDPOINTS,
        *policies.ENDPOINTS,
        *learning.ENDPOINTS,
        *matches.ENDPOINTS,
        *invocations.ENDPOINTS,
        *pins.ENDPOINTS,
        *approvals.ENDPOINTS,
        *chat_upstreams.ENDPOINTS,
        *keys.ENDPOINTS,
        *changes.ENDPOINTS,
        *watch.ENDPOINTS,
        *nodes.ENDPOINTS,
        *activity.ENDPOINTS,
        *tokens.ENDPOINTS,
        *budgets.ENDPOINTS,
        *audit_export.ENDPOINTS,
        *audit.ENDPOINTS,
        *packages.ENDPOINTS,
        *uploads.ENDPOINTS,
        *modules.ENDPOINTS,
        *directory.ENDPOINTS,
        *backups.ENDPOINTS,
    )
)
