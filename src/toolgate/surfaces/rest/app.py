"""The whole surface: the table of all endpoints, and the application made from it."""

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp

from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.routing import SEE_DOCUMENT, build_router
from toolgate.surfaces.rest.node_app import DATA_PLANE_ENDPOINTS, add_openapi_endpoint
from toolgate.surfaces.rest.resources import (
    activity,
    approvals,
    audit,
    audit_export,
    backups,
    catalog,
    changes,
    chat_upstreams,
    directory,
    imports,
    integrations,
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
    quotas,
    servers,
    tokens,
    trials,
    uploads,
    watch,
)


def rest_app(control: Control, *, services: Iterable[object] = (), elsewhere: str = SEE_DOCUMENT) -> ASGIApp:
    """The REST surface of a process that governs.

    `services`: those that not every such process has. `elsewhere`: the hint for paths that do not exist.
    """
    return build_router(ENDPOINTS, control, services=services, elsewhere=elsewhere)


ENDPOINTS: Final = add_openapi_endpoint(
    (
        *DATA_PLANE_ENDPOINTS,
        *me.ENDPOINTS,
        *integrations.ENDPOINTS,
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
        *quotas.ENDPOINTS,
        *audit_export.ENDPOINTS,
        *audit.ENDPOINTS,
        *packages.ENDPOINTS,
        *uploads.ENDPOINTS,
        *modules.ENDPOINTS,
        *directory.ENDPOINTS,
        *backups.ENDPOINTS,
    )
)
