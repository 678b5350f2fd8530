"""MCP servers that run as child processes, kept by a process supervisor (the warden)."""
