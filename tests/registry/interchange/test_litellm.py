"""The `mcp_servers` of LiteLLM and of Codex, read as bodies."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

CONFIG = """
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY}
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
mcp_servers:
  # Tools may be listed with the name of their server before them.
  time_server:
    transport: "stdio"
    command: "uvx"
    args: ["mcp-server-time", "--local-timezone", "UTC"]
    env:
      LEVEL: os.environ/LEVEL
      VERBOSE: true
      TOKEN: ${X-TOKEN}
    allowed_tools: ["time_server-get_current_time", "convert_time"]
    disallowed_tools: ["convert_time"]
    access_groups: ["dev_group"]
    timeout: 30
    max_concurrent_requests: 4
  issues:
    url: "https://issues.example.com/mcp"
    alias: tracker
    auth_type: "bearer_token"
    auth_value: os.environ/ISSUES_TOKEN
    static_headers: {X-Org: acme}
    extra_headers: ["X-User"]
    allow_all_keys: true
    allowed_tools: []
  legacy:
    transport: sse
    url: https://legacy.example.com/events
    disallowed_tools: [drop_all]
  petstore:
    url: https://petstore.example.com
    spec_path: /etc/petstore.json
"""


def of(**fields: Any) -> dict[str, Any]:
    return {"mcp_servers": {"x": {"url": "https://x.example/mcp"} | fields}}


def test_servers_are_imported_with_their_allowlists_groups_and_limits() -> None:
    imports = parse_imports(CONFIG)

    assert imports.bodies == [
        {
            "server_id": "time-server",
            "transport": "stdio",
            "stdio": {
                "command": "uvx",
                "args": ["mcp-server-time", "--local-timezone", "UTC"],
                "env": {"LEVEL": "${ENV:LEVEL}", "VERBOSE": "true", "TOKEN": "${ENV:X_TOKEN}"},
            },
            "display_name": "time_server",
            "tags": ["dev_group"],
            "budgets": {"tool_timeout_ms": 30_000, "max_concurrency": 4},
            "allowed_tools": ["get_current_time"],
        },
        {
            "server_id": "issues",
            "transport": "streamable_http",
            "http": {
                "url": "https://issues.example.com/mcp",
                "headers": {"X-Org": "acme", "Authorization": "Bearer ${ENV:ISSUES_TOKEN}"},
            },
            "display_name": "tracker",
        },
        {
            "server_id": "legacy",
            "transport": "http_sse_legacy",
            "http": {"url": "https://legacy.example.com/events"},
        },
    ]
    assert imports.skipped == {"petstore": "`spec_path`: it is an HTTP API, not an MCP server"}
    assert imports.restricted == {"legacy"}
    assert imports.warnings == [
        "`time_server`: set `TOKEN` where the gateway runs: no header of a caller fills them in",
        "`legacy`: the file hides `drop_all`, a record lists what it shows: set `allowed_tools`",
        'access group `dev_group` is a tag: a task with `mcp.tags = ["dev_group"]` shows it',
        "only servers are imported: no counterpart for `model_list`, `general_settings`",
        (
            "no counterpart for `extra_headers` of `issues`: "
            "the gateway passes no headers of its callers on: use `http.oauth` with `per_principal`"
        ),
        (
            "no counterpart for `allow_all_keys` of `issues`: "
            "a key reaches every server, unless it was created with `--servers` or `--tasks`"
        ),
    ]
    assert [parse_server(body).server_id for body in imports.bodies] == ["time-server", "issues", "legacy"]


@pytest.mark.parametrize(
    ("kind", "value", "headers"),
    [
        ("api_key", "os.environ/K", {"X-API-Key": "${ENV:K}"}),
        ("authorization", "Digest a", {"Authorization": "Digest a"}),
        ("basic", "ada:secret", {"Authorization": "Basic YWRhOnNlY3JldA=="}),
        ("basic", "os.environ/K", {"Authorization": "Basic ${ENV:K}"}),
        ("bearer_token", "os.environ/K", {"Authorization": "Bearer ${ENV:K}"}),
        ("token", "os.environ/K", {"Authorization": "token ${ENV:K}"}),
    ],
)
def test_a_fixed_credential_is_the_header_that_litellm_sends(
    kind: str, value: str, headers: dict[str, str]
) -> None:
    (body,) = parse_imports(of(auth_type=kind, authentication_token=value)).bodies

    assert body["http"]["headers"] == headers


def test_client_credentials_are_an_oauth_client_with_a_named_secret() -> None:
    fields = {
        "auth_type": "oauth2",
        "oauth2_flow": "client_credentials",
        "client_id": "gateway",
        "client_secret": "os.environ/CLIENT_SECRET",
        "issuer": "https://login.example.com",
        "scopes": "read write",
    }

    (body,) = parse_imports(of(**fields)).bodies
    left_out = parse_imports(of(**{**fields, "issuer": None}))

    assert body["http"]["oauth"] == {
        "grant": "client_credentials",
        "client_id": "gateway",
        "issuer": "https://login.example.com",
        "client_secret_ref": "CLIENT_SECRET",
        "scopes": ["read", "write"],
    }
    assert parse_server(body).server_id == "x"
    assert left_out.bodies == [
        {"server_id": "x", "transport": "streamable_http", "http": {"url": "https://x.example/mcp"}}
    ]
    assert left_out.warnings == [
        "`x`: its OAuth client is left out: set `http.oauth` with `client_secret_ref` and `issuer`"
    ]


def test_a_login_of_each_user_is_a_login_of_each_principal() -> None:
    imports = parse_imports(
        of(auth_type="oauth2", oauth2_flow="authorization_code", client_id="gateway", client_secret="literal")
    )

    assert imports.bodies[0]["http"]["oauth"] == {
        "grant": "authorization_code",
        "per_principal": True,
        "client_id": "gateway",
    }
    assert imports.warnings == [
        "`x`: its client secret is left out: name it in `http.oauth.client_secret_ref`, with `issuer`",
        "`x`: each caller logs in again: tokens are not imported",
    ]


def test_another_way_to_authenticate_is_reported() -> None:
    imports = parse_imports(of(auth_type="aws_sigv4", aws_region_name="eu-central-1"))

    assert imports.warnings == [
        "`x`: no counterpart for `auth_type` `aws_sigv4`: set `http.headers` or `http.oauth`",
        "no counterpart for `aws_region_name` of `x`",
    ]


def test_the_table_of_codex_is_imported() -> None:
    text = """
[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
env_http_headers = { X-Org = "ORG" }
enabled_tools = ["search"]
tool_timeout_sec = 45

[mcp_servers.git]
command = "uvx"
args = ["mcp-server-git"]
enabled = false
disabled_tools = ["git_reset"]
"""

    imports = parse_imports(text)

    assert imports.bodies == [
        {
            "server_id": "docs",
            "transport": "streamable_http",
            "http": {
                "url": "https://docs.example.com/mcp",
                "headers": {"Authorization": "Bearer ${ENV:DOCS_TOKEN}", "X-Org": "${ENV:ORG}"},
            },
            "budgets": {"tool_timeout_ms": 45_000},
            "allowed_tools": ["search"],
        },
        {
            "server_id": "git",
            "transport": "stdio",
            "stdio": {"command": "uvx", "args": ["mcp-server-git"]},
            "enabled": False,
        },
    ]
    assert imports.restricted == {"git"}


@pytest.mark.parametrize("content", [{}, [], {"mcp_servers": []}, {"mcp_servers": {"x": "y"}}])
def test_anything_else_is_refused_as_a_configuration(content: object) -> None:
    with pytest.raises(InvalidRecord, match="not a configuration of LiteLLM"):
        parse_imports(content, "litellm")
