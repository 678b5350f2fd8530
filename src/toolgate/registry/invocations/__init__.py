"""The queue of invocations: runs of workloads, leased to nodes.

- `contract.py`  `InvocationQueue`, which nodes use, and the pure rules of leases, retries and cancellation
- `sql.py`       `Invocations`, the queue and its history in two tables

`govern` queues and cancels, a node's invoker claims and reports. Never runs anything, and never gives one
invocation to two nodes.
"""
