"""The REST API of the control plane: the table of all endpoints."""

from typing import Final

from toolgate.surfaces.rest.node_app import DATA_PLANE_ENDPOINTS, add_openapi_endpoint
from toolgate.surfaces.rest.resources import (
    approvals,
    audit,
    audit_export,
    catalog,
    changes,
    chat_upstreams,
    imports,
    integrations,
    invocations,
    keys,
    learning,
    logins,
    me,
    modules,
    official,
    packages,
    pins,
    policies,
    registry,
    servers,
    trials,
    usage,
)

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
        *invocations.ENDPOINTS,
        *pins.ENDPOINTS,
        *approvals.ENDPOINTS,
        *chat_upstreams.ENDPOINTS,
        *keys.ENDPOINTS,
        *changes.ENDPOINTS,
        *registry.ENDPOINTS,
        *usage.ENDPOINTS,
        *audit_export.ENDPOINTS,
        *audit.ENDPOINTS,
        *packages.ENDPOINTS,
        *modules.ENDPOINTS,
    )
)
