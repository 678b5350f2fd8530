"""The MCP servers we call: one supervised pool, one module per transport."""
