"""The find tools: search the tools of a scope that is too large to list.

`ToolSearch` keeps an index of all servers' tools in the background and searches it for one view at a time.
The catalog of `govern` uses the same `HybridIndex`.

- `tool_search`  the results of `search_tools` and `describe_tool`
- `index`  ranks by words, and by meaning if a model is configured
- `semantic`  embeddings with a local model (loaded only if one is configured)

Never shows a tool outside the caller's view. Never blocks the event loop for longer than one search of words.
"""
