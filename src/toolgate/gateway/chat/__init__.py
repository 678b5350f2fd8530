"""Chats whose tools the gateway runs: one frozen context, one session, one loop.

An endpoint (the OpenAI API, a WASM guest) parses a chat request and calls `resolve_chat_scope`: which model
it prompts, under which policy and budgets. `ChatContext` then holds everything that stays fixed while the
chat runs. A `ChatSession` holds what changes: the tool loop and the history in the words of its API.
`ChatSession.run` drives both until the model answers or a budget ends the chat.

- `scope.py`        policy, upstream, budgets and tool names of one request
- `session.py`      `ChatContext`, `ChatSession`, the tool calls of one reply, token quotas of models
- `completions.py`  the session of the Chat Completions API; hidden turns, sealed into call ids

Never parses HTTP, never keeps anything between two requests, and never runs a tool that the caller's view
does not hold.
"""
