"""Toolgate: an MCP gateway. Many servers behind one URL; each caller sees only what it needs."""

__version__ = "0.2.0"
