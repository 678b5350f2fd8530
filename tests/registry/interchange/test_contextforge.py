"""Exports and catalogs of ContextForge, read as bodies."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

EVERYTHING: dict[str, Any] = {
    "name": "everything",
    "url": "http://127.0.0.1:3001/mcp",
    "description": "One of each",
    "transport": "STREAMABLEHTTP",
    "capabilities": {"tools": {}},
    "health_check": {"url": "http://127.0.0.1:3001/mcp/health", "interval": 30},
    "is_active": True,
    "tags": ["test", {"id": "demo", "label": "demo"}],
    "passthrough_headers": ["X-Tenant"],
}
LOCAL_TIME: dict[str, Any] = {
    "name": "local_time",
    "url": "http://127.0.0.1:8002/sse",
    "transport": "SSE",
    "is_active": False,
    "auth_type": "bearer",
    "auth_value": "gAAAAAB-encrypted",
}


def export(**entities: Any) -> dict[str, Any]:
    return {"version": "2025-03-26", "entities": {"gateways": [EVERYTHING, LOCAL_TIME]} | entities}


def test_a_gateway_is_a_server_and_its_encrypted_credential_a_reference() -> None:
    imports = parse_imports(export())

    assert imports.bodies == [
        {
            "server_id": "everything",
            "transport": "streamable_http",
            "http": {"url": "http://127.0.0.1:3001/mcp"},
            "tags": ["test", "demo"],
        },
        {
            "server_id": "local-time",
            "transport": "http_sse_legacy",
            "http": {
                "url": "http://127.0.0.1:8002/sse",
                "headers": {"Authorization": "Bearer ${ENV:LOCAL_TIME_TOKEN}"},
            },
            "display_name": "local_time",
            "enabled": False,
        },
    ]
    assert imports.warnings == [
        (
            "`local_time`: set `LOCAL_TIME_TOKEN` where the gateway runs: "
            "its credential is encrypted in the file"
        ),
        "no counterpart for `description` of `everything`",
        (
            "no counterpart for `passthrough_headers` of `everything`: "
            "the gateway passes no headers of its callers on: use `http.oauth` with `per_principal`"
        ),
    ]
    assert [parse_server(body).server_id for body in imports.bodies] == ["everything", "local-time"]


def test_a_virtual_server_is_described_as_a_task_whose_patterns_match_the_tools() -> None:
    server = {
        "name": "Clock desk",
        "tool_ids": ["local-time-get-current-time", "everything-echo", "weather-api"],
        "sse_endpoint": "/servers/1/sse",
        "is_active": True,
    }

    imports = parse_imports(export(gateways=[{**EVERYTHING, "name": "local"}, LOCAL_TIME], servers=[server]))

    assert [one for one in imports.warnings if "virtual server" in one] == [
        (
            "`virtual server Clock desk`: to keep it, write a task with "
            '`mcp.default_server_ids = ["local-time"]` and '
            '`mcp.tool_allowlist = ["local-time/get?current?time"]`'
        ),
        "`virtual server Clock desk`: no gateway of this file has the tools `everything-echo`, `weather-api`",
    ]


def test_what_contextforge_makes_itself_is_named_and_left_out() -> None:
    imports = parse_imports(
        export(
            gateways=[],
            tools=[{"name": "weather_api", "integration_type": "REST"}],
            prompts=[{"name": "greeting"}],
            resources=[{"uri": "file:///motd"}],
            roots=[{"uri": "file:///srv", "name": None}],
        )
    )

    assert imports.bodies == []
    assert imports.warnings == [
        (
            "no counterpart for the tools `weather_api`: "
            "a record has no tool that calls a REST API: put a server in front of it"
        ),
        "no counterpart for the prompts `greeting`: servers list their own, and the gateway has none itself",
        (
            "no counterpart for the resources `file:///motd`: "
            "servers list their own, and the gateway has none itself"
        ),
        "no counterpart for the roots `file:///srv`: each client states its own",
    ]


@pytest.mark.parametrize(
    ("gateway", "http", "warned"),
    [
        pytest.param(
            {"auth_type": "basic"},
            {"url": "https://x/mcp", "headers": {"Authorization": "Basic ${ENV:X_BASIC_AUTH}"}},
            "`X_BASIC_AUTH`",
            id="basic",
        ),
        pytest.param(
            {"auth_type": "query_param", "auth_query_params": {"api_key": "encrypted"}},
            {"url": "https://x/mcp?api_key=${ENV:X_API_KEY}"},
            "`X_API_KEY`",
            id="in the URL",
        ),
        pytest.param({"auth_type": "oauth"}, {"url": "https://x/mcp"}, "`oauth`", id="OAuth"),
        pytest.param({"auth_type": "authheaders"}, {"url": "https://x/mcp"}, "`authheaders`", id="headers"),
    ],
)
def test_each_way_to_authenticate_is_translated_or_reported(
    gateway: dict[str, Any], http: dict[str, Any], warned: str
) -> None:
    imports = parse_imports(export(gateways=[{"name": "x", "url": "https://x/mcp", **gateway}]))

    assert [body["http"] for body in imports.bodies] == [http]
    assert [warned in warning for warning in imports.warnings] == [True]


def test_the_catalog_of_contextforge_is_imported_with_its_ids() -> None:
    text = """
catalog_servers:
  - id: linear
    name: "Linear"
    category: "Project Management"
    url: "https://mcp.linear.app/sse"
    auth_type: "OAuth2.1"
    requires_api_key: false
    tags: ["project-management", "issue-tracking"]
  - id: keyed
    name: Keyed
    url: https://keyed.example.com/mcp
    auth_type: "API Key"
    requires_api_key: true
"""

    imports = parse_imports(text)

    assert imports.bodies == [
        {
            "server_id": "linear",
            "transport": "http_sse_legacy",
            "http": {"url": "https://mcp.linear.app/sse"},
            "display_name": "Linear",
            "tags": ["project-management", "issue-tracking"],
            "category": "Project Management",
        },
        {
            "server_id": "keyed",
            "transport": "streamable_http",
            "http": {"url": "https://keyed.example.com/mcp"},
            "display_name": "Keyed",
        },
    ]
    assert imports.warnings == [
        "`Linear`: no counterpart for `auth_type` `oauth2.1`: set `http.headers` or `http.oauth`",
        "`Keyed`: no counterpart for `auth_type` `api key`: set `http.headers` or `http.oauth`",
        "`Keyed`: it needs an API key: set `http.headers`",
    ]


@pytest.mark.parametrize("content", [{}, [], {"entities": {}}, {"entities": {"gateways": 1}}])
def test_anything_else_is_refused_as_an_export(content: object) -> None:
    with pytest.raises(InvalidRecord, match="not an export of ContextForge"):
        parse_imports(content, "contextforge")
