"""The data plane: every list and every call from every endpoint goes through the gateway.

`gateway.py` is the facade that surfaces use. It holds the snapshot, compiles a view for each caller, and
sends requests through one pipeline. The sub-packages form layers, top to bottom:

- `chat`  chats whose tools the gateway runs; uses the facade like a surface
- `gateway.py`  the facade
- `subscriptions`, `search`  who is notified of changes; the tools that search a scope
- `call`  quota, approval, audit, send
- `scope`  what one caller may list and call
- `auth`, `cluster`  authentication; the servers of this node or of all nodes

No other package sends a caller's request to a server, and no request is sent before its audit record is
written.
"""
