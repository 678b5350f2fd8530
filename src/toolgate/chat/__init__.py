"""Chats with models that call tools, as pure values: what to prompt, what to run, and when to stop.

`requests.py` parses a Chat Completions request, `responses/` a Responses request. `ToolLoop` takes each event
of a chat and returns `PromptModel`, `RunTools` or `Finish`. A transcript keeps the history as the JSON that
came and builds the next request to the model. `hidden_turns.py` packs the part of a turn that the client does
not see into the id of a call, because no node keeps state between two requests.

- `requests.py`, `client_tools.py`, `parsing.py`, `config.py`  what clients and tasks send
- `injection.py`                        MCP tools as functions
- `tool_loop.py`, `tool_calls.py`       the loop, the model's tool calls and their results
- `model_completion.py`, `streamed_completion.py`   completions of models, repaired where servers are sloppy
- `completions.py`, `hidden_turns.py`   the history, and the completion for the client
- `call_filter.py`                      passthrough without undeclared calls

`gateway.chat` drives it; the endpoints parse and encode with it. Never awaits, logs, or reads a clock. Never
decides what a caller may do: that is policy.
"""
