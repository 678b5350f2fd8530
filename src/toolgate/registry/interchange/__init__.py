"""Server definitions of other programs, read and written.

- `imports.py`      detects the format and returns bodies; catalogs of Docker's MCP gateway
- `server_json.py`  the `server.json` of the official registry, both ways
- `yaml.py`         the part of YAML they need

REST and packages use it. A definition decides what to run, never how. Never downloads or starts anything.
"""
