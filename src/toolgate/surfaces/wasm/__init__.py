"""The door of guests: `cchat_*` and `mcp_*` as calls into the host, and the invocations that run them."""
