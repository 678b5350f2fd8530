"""Server definitions of other programs, as bodies of ours: the `mcpServers` JSON of Claude, Cursor, Windsurf
and their kin, and the `servers` JSON of VS Code.

What is read here is not checked: a body still has to pass `parse_server`. No tool of an imported server is
allowed until somebody says which.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import MAX_SERVER_ID

_PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
_URL_FIELDS: Final = ("url", "serverUrl", "httpUrl")

# VS Code and Cursor keep comments and trailing commas in these files. A string is matched first, and kept.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
# `${NAME}` and `${NAME:-default}` in Claude Code, `${env:NAME}` and `${input:name}` in VS Code and Cursor.
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][\w-]*)(:-[^}]*)?\}")
_NOT_IN_ID = re.compile(r"[^a-z0-9]+")


def parse_mcp_servers_json(text: str) -> list[dict[str, Any]]:
    """One body per server in the file, in its order. Raises InvalidRecord when there is none to read."""
    try:
        document = json.loads(_keep_strings(_TRAILING_COMMA, _keep_strings(_COMMENT, text)))
    except (ValueError, RecursionError) as exc:
        raise InvalidRecord(f"this is not JSON: {exc}") from exc
    servers = _find_servers(document)
    taken: set[str] = set()
    return [_body(_unique_id(name, taken), name, server) for name, server in servers.items()]


def _keep_strings(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or "", text)


def _find_servers(document: object) -> Mapping[str, Any]:
    for place in _PLACES:
        found = document
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and all(isinstance(server, dict) for server in found.values()):
            return found
    raise InvalidRecord("there is no `mcpServers` and no `servers` object in this file")


def _unique_id(name: str, taken: set[str]) -> str:
    """`GitHub (work)` becomes `github-work`, a second one `github-work-2`."""
    stem = _NOT_IN_ID.sub("-", name.lower()).strip("-")[: MAX_SERVER_ID - 3].rstrip("-") or "server"
    server_id, number = stem, 1
    while server_id in taken:
        number += 1
        server_id = f"{stem}-{number}"
    taken.add(server_id)
    return server_id


def _body(server_id: str, name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"server_id": server_id}
    url = next((server[field] for field in _URL_FIELDS if field in server), None)
    if url is None:
        launch = {field: server[field] for field in ("command", "args", "env", "cwd") if server.get(field)}
        body |= {"transport": "stdio", "stdio": _translated(launch)}
    else:
        is_legacy = server.get("type", server.get("transport")) == "sse"
        endpoint = {"url": url} | ({"headers": server["headers"]} if server.get("headers") else {})
        body |= {
            "transport": "http_sse_legacy" if is_legacy else "streamable_http",
            "http": _translated(endpoint),
        }
    if name != server_id:
        body["display_name"] = name
    if server.get("disabled") is True:
        body["enabled"] = False
    return body


def _translated(value: Any) -> Any:
    """Variables of other programs as references of ours, in every text of a definition."""
    if isinstance(value, str):
        return _VARIABLE.sub(_reference, value)
    if isinstance(value, list):
        return [_translated(item) for item in value]
    if isinstance(value, dict):
        return {name: _translated(item) for name, item in value.items()}
    return value


def _reference(match: re.Match[str]) -> str:
    kind, name, default = match.groups()
    # An input is asked for by an editor; for a server that runs without one it comes from the environment.
    variable = name.replace("-", "_")
    return f"${{ENV:{variable.upper() if kind == 'input' else variable}{default or ''}}}"
