"""The endpoints of every process that serves, nodes included: health, scopes, client setup, one tool call.

Handlers get a `GatewayProcess`. Never imports `govern`'s control plane: a node would load it for nothing.
"""
