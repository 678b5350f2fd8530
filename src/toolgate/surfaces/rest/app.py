"""The REST API of the control plane: the table of all endpoints."""

from typing import Final

from toolgate.surfaces.rest.data_plane import DATA_PLANE_ENDPOINTS
from toolgate.surfaces.rest.framework.openapi import add_openapi_endpoint
from toolgate.surfaces.rest.framework.routing import list_endpoints
from toolgate.surfaces.rest.resources import (
    approvals,
    audit,
    callers,
    catalog,
    changes,
    interchange,
    invocations,
    modules,
    packages,
    policies,
    registry,
    servers,
    trials,
    usage,
)

_ADMINISTRATION: Final = list_endpoints(callers, servers, trials, interchange, policies, changes, registry)
_USE: Final = list_endpoints(catalog, packages, modules, invocations, approvals, usage, audit)
ENDPOINTS: Final = add_openapi_endpoint((*DATA_PLANE_ENDPOINTS, *_ADMINISTRATION, *_USE))
