"""Imports and exports server definitions of other programs.

- `imports.py`      detects the format and returns bodies; catalogs of Docker's MCP gateway
- `server_json.py`  the `server.json` of the official registry, both ways
- `yaml.py`         the YAML subset of these formats

REST and packages use it. A definition decides what to run, never how. Never downloads or starts anything.
"""
