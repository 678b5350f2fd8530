"""MCP servers behind a URL, and the gateway's HTTP client.

- `egress.py`             which addresses may be connected to, for every outbound connection
- `client_connection.py`  one HTTP/1.1 connection; `connection_pool.py`: all to one server
- `endpoint.py`           the endpoint of a record, resolved, and the negotiation with its server
- `responses.py`          the JSON-RPC in HTTP responses
- `streamable.py`         connections over streamable HTTP, and their connector
- `sse_legacy.py`         the HTTP+SSE transport of 2024
- `fetch.py`              small documents, and the OpenTelemetry collector

The client is our own because the data path needs it: `httpx2` takes 2.5 times the CPU for each event of a
stream, and 55 ms and 7 MiB at every start. Never follows a redirect, never uses a proxy of the environment.
"""
