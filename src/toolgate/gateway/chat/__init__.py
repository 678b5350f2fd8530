"""Chats whose tools the gateway runs: one frozen context, one session, one loop.

A surface (the OpenAI API, a WASM guest) parses a chat request and calls `resolve_chat_scope` to find its
model, policy and budgets. `ChatContext` then holds everything that stays fixed while the chat runs. A
`ChatSession` holds the parts that change: the tool loop, and the history in the format of its API.
`ChatSession.run` drives both until the model responds without calls or a budget ends the chat.

- `scope.py`        policy, upstream, budgets and tool names of one request
- `session.py`      `ChatContext`, `ChatSession`, running tool calls, token quotas of models
- `completions.py`  the session of the Chat Completions API

Never parses HTTP, never keeps state between two requests, and never runs a tool outside the caller's view.
"""
