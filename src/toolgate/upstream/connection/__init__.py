"""The contract between the pool and its transports, and what every transport needs to keep it.

A `Connector` opens a `ServerConnection` to the server of a record; its owner listens as a
`ConnectionListener`.

- `contract.py`       the contract, its values, background tasks, and the pool's limits
- `messages.py`       JSON-RPC, the `_meta` envelope and the `Mcp-*` headers of each protocol revision
- `negotiation.py`    which revision a server speaks
- `relay.py`          what a server may send to the clients behind its requests
- `subscriptions.py`  the notifications that the gateway requests from a server
- `stream.py`         connections on which all messages come on one stream
- `secrets.py`        references in records, resolved at connect time

Never retries, and never sends a request twice.
"""
