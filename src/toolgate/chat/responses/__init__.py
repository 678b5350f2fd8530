"""Chats over the Responses API, as pure values: tools, input, rounds, and the response that grows over them.

The model's server speaks the Responses API itself; only what the gateway adds is translated. An `mcp` tool
with just a label is the gateway's: the model gets functions for it, and the client sees `mcp_call` items.
What a client sends back of them becomes function calls and outputs again.

- `tools.py`     `tools` and `tool_choice`: which tools a request offers, and which of them need approval
- `requests.py`  the request, its restored input, and the next request to the model
- `round.py`     one reply of the model, as the client gets it
- `output.py`    the items and events of the response

Never keeps anything between two requests: what must survive travels in the ids of items, sealed by the
endpoint.
"""
