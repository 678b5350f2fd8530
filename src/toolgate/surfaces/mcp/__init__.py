"""The MCP door: both eras of the protocol on one path."""
