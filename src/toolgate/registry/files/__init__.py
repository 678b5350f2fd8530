"""A directory of server files, applied to the store.

- `documents.py`  TOML and JSON, parsed within bounds
- `directory.py`  reads the directory: servers, problems, warnings
- `reload.py`     plans and applies the difference, and watches for changes

The control plane runs it if `mcp_registry_dir` is set. Never follows a link. One invalid file never stops the
others.
"""
