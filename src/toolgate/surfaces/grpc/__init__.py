"""The gRPC surface: SPEAR's registry service, services for policy and for nodes, health and reflection.

An `Rpc` is a row of a table: service, method, roles, handler. `RpcDispatcher` authenticates, checks the role
and parses, for all of them. Handlers call `govern`, as REST does, so both give the same results. `list_rpcs`
in `server` is the whole table; nodes and SPEAR call it.

Never holds state that another replica needs: what nodes coordinate through control is in the store.
"""
