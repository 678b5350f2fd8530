"""Reads and writes server definitions of other programs.

- `imports.py`         detects the format and hands the document to its reader
- `mcp_servers.py`     `mcpServers` and `servers`: editors, mcp-hub, MCPHub, MetaMCP, FastMCP
- `other_gateways.py`  ContextForge, LiteLLM (and Codex), agentgateway
- `docker_catalog.py`  catalogs of Docker's MCP gateway
- `server_json.py`     the `server.json` of the official registry, both ways
- `definitions.py`     what the first two share: from the fields of a definition to the body of a server
- `yaml.py`            the part of YAML they need

REST and packages use it. A file decides what to run; a catalog never decides how. What has no counterpart is
reported, and a file that hides tools never becomes a server that shows them. Never downloads or starts
anything.
"""
