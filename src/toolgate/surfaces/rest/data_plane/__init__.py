"""The endpoints of every process that serves, nodes included: health, scopes, client setup, one tool call.

Handlers get a `GatewayProcess`. Never imports `govern`'s control plane: the import would slow the start of
nodes, which do not use it.
"""

from typing import Final

from toolgate.surfaces.rest.data_plane import calls, explain, scopes, status
from toolgate.surfaces.rest.framework.openapi import add_openapi_endpoint
from toolgate.surfaces.rest.framework.routing import list_endpoints

DATA_PLANE_ENDPOINTS: Final = list_endpoints(status, scopes, explain, calls)
NODE_ENDPOINTS: Final = add_openapi_endpoint(DATA_PLANE_ENDPOINTS)
