"""The servers of this node and of others.

On a node, the gateway's servers are its own pool; on a control plane they are `ReportedServers`, built from
what nodes report. Both fulfil the contract `Servers`.

- `servers`  the contract
- `node`  a node reports itself, and stops serving when it may be outdated
- `reported_servers`  the control plane shows what nodes report
- `drift`  definitions that changed since approval are quarantined

Never trusts one good list after a bad one: a change counts until the tool is approved again.
"""
