"""The gRPC surface: SPEAR's registry service, Toolgate's policy and node services, health and reflection.

An `Rpc` is a row of a table: service, method, roles, handler. `RpcDispatcher` authenticates each call, checks
the role and parses the request. Handlers call `govern`, as REST does, so both return the same results.
`list_rpcs` in `server` returns the whole table. Nodes and SPEAR's tools call these RPCs.

Never holds state that another replica needs: nodes coordinate through the store.
"""
