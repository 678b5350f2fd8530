"""What `mcpServers` mean in different programs: tools, limits, logins, variables; groups of MCPHub."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

MCPHUB: dict[str, Any] = {
    "mcpServers": {
        "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "$ZONE"}},
        "git": {
            "command": "uvx",
            "args": ["mcp-server-git"],
            "enabled": True,
            "tools": {
                "git_reset": {"enabled": False},
                "git_log": {"enabled": True, "description": "History"},
            },
        },
        "browser": {
            "type": "streamable-http",
            "url": "http://browser:3000/mcp",
            "headers": {"Authorization": "Bearer ${BROWSER_TOKEN}"},
            "perSessionClient": True,
            "options": {"timeout": 60_000, "resetTimeoutOnProgress": True},
            "owner": "admin",
        },
        "rare": {"command": "npx", "args": ["rare"], "startOnDemand": True, "idleTimeoutMs": 120_000},
        "petstore": {"type": "openapi", "openapi": {"url": "https://petstore.example.com/openapi.json"}},
    },
    "groups": [
        {"id": "1", "name": "desk", "servers": ["time", "git"]},
        {
            "id": "2",
            "name": "history",
            "servers": [
                {"name": "git", "tools": ["git_log"], "alias": "repo"},
                {"name": "time", "tools": "all"},
            ],
            "visibility": "group",
        },
        {"id": "3", "name": "gone", "servers": ["slack"]},
    ],
    "bearerKeys": [
        {
            "name": "ci",
            "token": "secret",
            "enabled": True,
            "accessType": "groups",
            "allowedGroups": ["history"],
        },
        {"name": "all", "token": "secret", "enabled": True, "accessType": "all"},
    ],
    "users": [{"username": "admin", "password": "hash"}],
}


def of(**fields: Any) -> dict[str, Any]:
    return {"mcpServers": {"x": {"command": "x"} | fields}}


def remote(**fields: Any) -> dict[str, Any]:
    return {"mcpServers": {"x": {"url": "https://x.example/mcp"} | fields}}


def test_the_settings_of_mcphub_are_imported() -> None:
    imports = parse_imports(MCPHUB)

    assert imports.bodies == [
        {
            "server_id": "time",
            "transport": "stdio",
            "stdio": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "${ENV:ZONE}"}},
        },
        {
            "server_id": "git",
            "transport": "stdio",
            "stdio": {"command": "uvx", "args": ["mcp-server-git"]},
        },
        {
            "server_id": "browser",
            "transport": "streamable_http",
            "http": {
                "url": "http://browser:3000/mcp",
                "headers": {"Authorization": "Bearer ${ENV:BROWSER_TOKEN}"},
            },
            "budgets": {"tool_timeout_ms": 60_000},
            "sharing": "per_session",
        },
        {
            "server_id": "rare",
            "transport": "stdio",
            "stdio": {"command": "npx", "args": ["rare"]},
            "idle_timeout_s": 120,
        },
    ]
    assert imports.skipped == {"petstore": "type `openapi`: it is an HTTP API, not an MCP server"}
    assert imports.restricted == {"git"}
    assert [parse_server(body).server_id for body in imports.bodies] == ["time", "git", "browser", "rare"]


def test_groups_of_mcphub_are_described_as_tasks_and_its_keys_as_commands() -> None:
    imports = parse_imports(MCPHUB)

    assert imports.warnings == [
        "`git`: tools keep their own names and texts: no counterpart for `git_log`",
        "`git`: the file hides `git_reset`, a record lists what it shows: set `allowed_tools`",
        '`group desk`: to keep it, write a task with `mcp.default_server_ids = ["time", "git"]`',
        (
            '`group history`: to keep it, write a task with `mcp.default_server_ids = ["git", "time"]` '
            'and `mcp.tool_allowlist = ["git/git_log", "time/*"]`'
        ),
        "`group gone`: no server of this file is called `slack`",
        "`bearer key ci`: keys are not imported: make one with `toolgate keys create ID --tasks history`",
        "`bearer key all`: keys are not imported: make one with `toolgate keys create ID`",
        "only servers are imported: no counterpart for `users`",
        "no counterpart for `owner` of `browser`",
        "no counterpart for `options` of `browser`",
        "no counterpart for `visibility` of `group history`",
        "no counterpart for `alias` of `group history`",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"tools": ["*"]}, {"allowed_tools": ["*"]}, id="Copilot: all"),
        pytest.param({"includeTools": ["a", "b"]}, {"allowed_tools": ["a", "b"]}, id="Gemini CLI"),
        pytest.param(
            {"includeTools": ["a", "b"], "excludeTools": ["b"]},
            {"allowed_tools": ["a"]},
            id="and denied ones",
        ),
        pytest.param({"allowedTools": []}, {"allowed_tools": []}, id="none"),
        pytest.param(
            {"tools": ["@me", "a/b", "prompt:x"]}, {"allowed_tools": ["?me", "*/a/b", "*/prompt:x"]}
        ),
        pytest.param({"disabled": True}, {"enabled": False}, id="Windsurf, mcp-hub"),
        pytest.param({"disabled": False, "enabled": True}, {}, id="enabled"),
        pytest.param({"isActive": False}, {"enabled": False}, id="Cherry Studio"),
        pytest.param({"timeout": 3_600_000}, {"budgets": {"tool_timeout_ms": 300_000}}, id="the longest"),
        pytest.param({"name": "The X"}, {"display_name": "The X"}, id="mcp-hub: a name"),
        pytest.param({"type": "STDIO"}, {}, id="MetaMCP"),
        pytest.param(
            {"env": {"N": 1, "B": False, "HOME": "${userHome}/x", "S": "a${/}b${pathSeparator}c"}},
            {
                "stdio": {
                    "command": "x",
                    "env": {"N": "1", "B": "false", "HOME": "${ENV:HOME}/x", "S": "a/b/c"},
                }
            },
            id="values of an editor",
        ),
    ],
)
def test_a_field_with_a_counterpart_is_translated_without_a_word(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    imports = parse_imports(of(**fields))

    plain = {"server_id": "x", "transport": "stdio", "stdio": {"command": "x"}}
    assert (imports.bodies, imports.warnings, imports.restricted) == ([plain | expected], [], set())
    assert parse_server(imports.bodies[0]).server_id == "x"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"disabledTools": ["a"]}, id="Windsurf"),
        pytest.param({"disabled_tools": ["a"]}, id="mcphub.nvim"),
        pytest.param({"tools": ["*"], "excludeTools": ["a"]}, id="all but one"),
        pytest.param({"tools": {"a": {"enabled": False}}}, id="MCPHub, FastMCP"),
        pytest.param({"exclude_tags": ["admin"]}, id="FastMCP, tags that are hidden"),
        pytest.param({"include_tags": [], "allowedTools": ["a"]}, id="FastMCP, tags that are shown"),
    ],
)
def test_a_server_whose_file_hides_tools_allows_none_until_an_admin_says_which(
    fields: dict[str, Any],
) -> None:
    imports = parse_imports(of(**fields))

    assert imports.restricted == {"x"}
    assert "allowed_tools" not in imports.bodies[0]
    assert ["set `allowed_tools`" in warning for warning in imports.warnings] == [True]


@pytest.mark.parametrize(
    ("fields", "http"),
    [
        pytest.param(
            {"auth": "t0ken"}, {"headers": {"Authorization": "Bearer t0ken"}}, id="FastMCP: a token"
        ),
        pytest.param(
            {"type": "STREAMABLE_HTTP", "bearerToken": "${T}"},
            {"headers": {"Authorization": "Bearer ${ENV:T}"}},
            id="MetaMCP",
        ),
        pytest.param({"auth": "oauth"}, {"oauth": {"grant": "authorization_code"}}, id="FastMCP: OAuth"),
        pytest.param(
            {"oauth": {"clientId": "me", "callbackPort": 8080, "scopes": "read write"}},
            {"oauth": {"grant": "authorization_code", "client_id": "me", "scopes": ["read", "write"]}},
            id="Claude Code",
        ),
        pytest.param(
            {"auth": {"CLIENT_ID": "me", "CLIENT_SECRET": "s", "scopes": ["read"]}},
            {"oauth": {"grant": "authorization_code", "client_id": "me", "scopes": ["read"]}},
            id="Cursor",
        ),
        pytest.param(
            {"headers": {"authorization": "Bearer a"}, "auth": "oauth"},
            {"headers": {"authorization": "Bearer a"}},
            id="a header wins over a login",
        ),
        pytest.param(
            {"headers": {"X-Org": "acme"}, "bearerToken": "a"},
            {"headers": {"X-Org": "acme"}},
            id="headers win over a token, which is reported",
        ),
    ],
)
def test_each_way_to_authenticate_is_translated(fields: dict[str, Any], http: dict[str, Any]) -> None:
    imports = parse_imports(remote(**fields))

    assert [body["http"] for body in imports.bodies] == [{"url": "https://x.example/mcp"} | http]
    assert parse_server(imports.bodies[0]).server_id == "x"


@pytest.mark.parametrize(
    ("fields", "transport"),
    [
        ({"url": "https://x/sse"}, "http_sse_legacy"),
        ({"url": "https://x/sse/"}, "http_sse_legacy"),
        ({"url": "https://x/sse", "type": "http"}, "streamable_http"),
        ({"url": "https://x/assess"}, "streamable_http"),
        ({"url": "https://x/mcp", "transport": "SSE"}, "http_sse_legacy"),
        ({"url": "https://[x/sse"}, "streamable_http"),
    ],
)
def test_the_transport_is_that_of_the_file_or_of_the_url(fields: dict[str, Any], transport: str) -> None:
    (body,) = parse_imports({"mcpServers": {"x": fields}}).bodies

    assert body["transport"] == transport


def test_what_has_no_counterpart_is_named_once_with_its_servers() -> None:
    server = {
        "command": "x",
        "icon": "x.png",
        "dev": {"watch": ["src"]},
        "envFile": "${workspaceFolder}/.env",
    }
    content = {"mcpServers": {"a": server, "b": {**server, "timeout": 60}}, "theme": "dark"}

    assert parse_imports(content).warnings == [
        "only servers are imported: no counterpart for `theme`",
        "no counterpart for `icon` of `a`, `b`",
        "no counterpart for `dev` of `a`, `b`",
        (
            "no counterpart for `envFile` of `a`, `b`: "
            "set its variables where the gateway runs, and name them in `stdio.env_from`"
        ),
        "no counterpart for `timeout` of `b`",
    ]


def test_a_value_that_only_an_editor_or_a_command_gives_is_a_variable_to_set() -> None:
    env = {"TOKEN": "${cmd: op read op://vault/token}", "KEY": "${input:api-key}", "NONE": None}
    imports = parse_imports(of(args=["${workspaceFolder}"], env=env))

    assert imports.bodies[0]["stdio"] == {
        "command": "x",
        "args": ["${ENV:workspaceFolder}"],
        "env": {"TOKEN": "${ENV:X_TOKEN}", "KEY": "${ENV:API_KEY}", "NONE": "${ENV:NONE}"},
    }
    assert imports.warnings == [
        "`x`: set `NONE` where the gateway runs: the file has no value",
        "`x`: only an editor knows `workspaceFolder`: write the directory, or set that variable on the node",
        "`x`: set `X_TOKEN` where the gateway runs: the gateway runs no command for a value",
        "`x`: set `API_KEY` where the gateway runs: no editor prompts for it",
    ]


def test_a_file_of_no_known_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRecord, match="no servers in a known format") as refused:
        parse_imports({"tools": []})

    assert refused.value.hint.startswith("known formats: `mcpServers` or `servers`")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    [
        *("command", "args", "env", "cwd", "url", "type", "transport", "headers", "auth", "oauth", "tools"),
        *("disabledTools", "includeTools", "include_tags", "timeout", "options", "tags", "idleTimeoutMs"),
        *("startOnDemand", "bearerToken", "access_groups", "auth_type", "auth_value", "alias", "name"),
        *("static_headers", "env_http_headers", "bearer_token_env_var", "client_secret", "oauth2_flow"),
        *("allowed_tools", "disallowed_tools", "auth_query_params", "tool_ids", "is_active", "stdio", "mcp"),
        *("spec_path", "servers", "allowedGroups", "scopes", "issuer"),
    ]
)
_ENTRY = st.dictionaries(_FIELDS, _JSON, max_size=6)
_SERVERS = st.dictionaries(st.text(max_size=8), _ENTRY, max_size=3)


@given(
    _SERVERS.map(lambda found: {"mcpServers": found, "groups": list(found.values()), "bearerKeys": [{}]})
    | _SERVERS.map(lambda found: {"mcp_servers": found})
    | st.lists(_ENTRY, max_size=3).map(lambda found: {"entities": {"gateways": found, "servers": found}})
    | st.lists(_ENTRY, max_size=3).map(lambda found: {"mcp": {"targets": found}})
)
def test_values_of_any_shape_are_imported_or_refused_and_no_more(content: dict[str, Any]) -> None:
    with suppress(InvalidRecord):
        for body in parse_imports(content).bodies:
            with suppress(InvalidRecord):
                parse_server(body)
