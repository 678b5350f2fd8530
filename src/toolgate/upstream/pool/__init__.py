"""All MCP servers of a node behind one call.

`Pool` applies records, admits calls and sends them. Each server has a `ServerSupervisor`, which keeps a
`ManagedConnection` open, lists the server (`ServerDiscovery`) and watches resources. `sessions.py` adds
dedicated and session-based connections; `admission.py` has the server's gate, the node's slots and those for
child processes; `kept_definitions.py` remembers lists over restarts.

Never sends a call twice, and never lets one server's failure reach another.
"""
