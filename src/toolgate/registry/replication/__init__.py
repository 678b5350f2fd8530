"""How a node follows the control plane.

- `connection.py`  the gRPC connection, to one replica at a time
- `sync.py`        lists, watches and polls, with backoff
- `state.py`       the parsed state, replaced by each transaction
- `remote.py`      approvals, invocations and quotas, requested from the control plane

A node serves its last state while the control plane is unavailable. Never serves a transaction in part.
"""
