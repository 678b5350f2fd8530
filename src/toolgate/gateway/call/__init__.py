"""The pipeline of one request to a server: quota, approval, audit, send.

The facade makes a `CallContext` and hands it to `CallPipeline.run`. Stages admit the call in their order or
deny it; then its start is audited, the request is sent, and its end is audited, whatever happens.

- `context`  the request as one value, and what stages say about it
- `targets`  which route a request leads to, and whether it still does after waiting
- `quota`, `approval`  the stages
- `pipeline`, `tracing`  admission and sending, with a span if tracing is on
- `audit_trail`  the only place that writes audit records of calls
- `elicitation`, `parked_calls`  input that a server or an approval needs from the client

Never sends a request twice, and never sends one that is not recorded.
"""
