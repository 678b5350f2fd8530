"""Configurations of agentgateway, read as bodies."""

import pytest

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

SHORT = """
mcp:
  port: 3000
  policies:
    cors: {allowOrigins: ["*"]}
  targets:
  - name: everything
    stdio:
      cmd: npx
      args: ["@modelcontextprotocol/server-everything"]
"""
LONG = """
binds:
- port: 3000
  listeners:
  - routes:
    - backends:
      - mcp:
          targets:
          - name: time
            stdio: {cmd: uvx, args: [mcp-server-time], env: {TZ: UTC}}
          - name: tracker
            mcp: {host: "https://tracker.example.com/mcp"}
          - name: old
            sse: {host: localhost, port: 3001, path: /sse}
          - name: petstore
            openapi: {host: localhost, port: 8080, schema: {file: petstore.json}}
"""


def test_targets_are_servers_wherever_they_are() -> None:
    short, long = parse_imports(SHORT), parse_imports(LONG)

    assert [*short.bodies, *long.bodies] == [
        {
            "server_id": "everything",
            "transport": "stdio",
            "stdio": {"command": "npx", "args": ["@modelcontextprotocol/server-everything"]},
        },
        {
            "server_id": "time",
            "transport": "stdio",
            "stdio": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}},
        },
        {
            "server_id": "tracker",
            "transport": "streamable_http",
            "http": {"url": "https://tracker.example.com/mcp"},
        },
        {
            "server_id": "old",
            "transport": "http_sse_legacy",
            "http": {"url": "http://localhost:3001/sse"},
        },
    ]
    assert long.skipped == {"petstore": "it has neither a command nor the URL of an MCP server"}
    assert short.warnings == [
        "only targets are imported: tasks and keys take the place of routes and policies"
    ]
    assert [parse_server(body).server_id for body in long.bodies] == ["time", "tracker", "old"]


def test_anything_else_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="not a configuration of agentgateway"):
        parse_imports({"mcp": {"servers": {}}}, "agentgateway")
