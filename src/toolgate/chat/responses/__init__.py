"""Chats over the Responses API, as pure values: tools, input, rounds, and the response that grows over them.

The model's server speaks the Responses API itself; the gateway translates only its own items. An `mcp` tool
with just a label is the gateway's: the model gets functions for it, and the client sees `mcp_call` items.
Items that a client sends back become function calls and outputs again.

- `tools.py`     `tools` and `tool_choice`: which tools a request offers, and which of them need approval
- `requests.py`  the request, its restored input, and the next request to the model
- `round.py`     one response of the model, as the client gets it
- `output.py`    the items and events of the response

Never keeps state between two requests: it travels in the ids of items, sealed by the endpoint.
"""
