"""The MCP endpoint: all protocol revisions on the same paths, for clients that speak MCP.

`McpEndpoint` authenticates a request, parses its URL into a `Caller` and its body into an `McpMessage`, and
dispatches by the revision of the body. `StatefulHandler` serves session-based revisions, `StatelessHandler`
the stateless one; both send what needs a server through `RequestDispatcher` to the gateway. Batches and the
2024 HTTP+SSE transport are other ways into a session.

- `endpoint.py`                        the entry, and the dispatch by revision
- `stateful.py`, `session.py`          sessions, their signed ids, and requests to their clients
- `session_transports.py`              revision 2025-03-26 batches; the 2024 transport
- `stateless.py`, `input_required.py`  requests with their own envelope, and multi-round-trip requests
- `dispatch.py`                        lists, server requests and capabilities
- `exchange.py`, `jsonrpc.py`, `responses.py`  parsing and encoding

Never talks to a server itself, and keeps no state that another node would miss.
"""
