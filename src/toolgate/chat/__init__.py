"""Conversations with models that call tools, as pure values: what to prompt, what to run, and when to stop.

`requests.py` parses a Chat Completions request, `responses/` one to the Responses API. `ToolLoop` decides: it
takes what happened and returns `AskModel`, `RunTools` or `Finish`. A transcript keeps the history as the JSON
it came as and builds the next request to the model. `hidden_turns.py` packs what the client does not see of a
turn into the id of a call, since no node keeps anything between two requests.

- `requests.py`, `client_tools.py`, `parsing.py`, `config.py`  what clients and tasks send
- `injection.py`                        MCP tools as functions
- `tool_loop.py`, `tool_calls.py`       the loop, and what models call and read
- `model_completion.py`, `streamed_completion.py`   what models return, repaired where servers are sloppy
- `completions.py`, `hidden_turns.py`   the history, and the completion for the client
- `call_filter.py`                      passthrough without undeclared calls

`gateway.chat` drives it; the endpoints parse and encode with it. Never awaits, logs, or reads a clock. Never
decides what a caller may do: that is policy.
"""
