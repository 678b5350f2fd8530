"""MCP servers behind a URL: the HTTP client with its egress check, streamable HTTP and HTTP+SSE."""
