"""Server definitions of other programs, read and written.

- `imports.py`         detects the format and returns bodies
- `server_json.py`     the `server.json` of the official registry, both ways
- `docker_catalog.py`  catalogs of Docker's MCP gateway
- `yaml.py`            the part of YAML they need

REST and packages use it. A definition decides what to run, never how. Never downloads or starts anything.
"""
