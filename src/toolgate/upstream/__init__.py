"""The MCP servers and the models that a node calls.

`pool` keeps every server connected, listed and within its budgets; `gateway` and `app` call it. The
transports (`stdio`, `http`) open connections that obey the contract in `connection`. `oauth` adds tokens to
them, and `models` sends prompts to chat upstreams. Nothing here decides what a caller may see or call: that
is `gateway` and `policy`.
"""
