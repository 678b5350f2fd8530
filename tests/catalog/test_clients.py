"""The programs that connect to a gateway: what each is told, and where it keeps it."""

import json
import shlex
from typing import Any

import pytest

from toolgate.catalog.clients import (
    CLIENT_PROGRAMS,
    LONG_URL_CHARS,
    ClientKind,
    GatewayEndpoint,
    describe_selection,
    warn_about_length,
)

URL = "http://127.0.0.1:8080/api/mcp/t/review"
OPEN = GatewayEndpoint(name="review", url=URL)
CLOSED = GatewayEndpoint(name="review", url="https://tools.example.com/api/mcp", needs_key=True)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", {"mcpServers": {"review": {"type": "http", "url": URL}}}),
        ("claude-desktop", {"mcpServers": {"review": {"command": "npx", "args": ["-y", "mcp-remote", URL]}}}),
        ("cursor", {"mcpServers": {"review": {"url": URL}}}),
        ("vscode", {"servers": {"review": {"type": "http", "url": URL}}}),
        ("windsurf", {"mcpServers": {"review": {"serverUrl": URL}}}),
        ("generic", {"mcpServers": {"review": {"type": "http", "url": URL}}}),
    ],
)
def test_each_client_gets_its_own_shape(client: ClientKind, expected: dict[str, Any]) -> None:
    assert CLIENT_PROGRAMS[client].document(OPEN) == expected


@pytest.mark.parametrize(
    ("client", "reference"),
    [
        ("claude-code", "Bearer ${TOOLGATE_KEY}"),
        ("claude-desktop", "Authorization:${TOOLGATE_AUTHORIZATION}"),
        ("cursor", "Bearer ${env:TOOLGATE_KEY}"),
        ("vscode", "Bearer ${env:TOOLGATE_KEY}"),
        ("windsurf", "Bearer ${env:TOOLGATE_KEY}"),
        ("generic", "Bearer ${TOOLGATE_KEY}"),
    ],
)
def test_where_a_key_is_needed_a_variable_is_named(client: ClientKind, reference: str) -> None:
    assert reference in json.dumps(CLIENT_PROGRAMS[client].document(CLOSED))
    assert "TOOLGATE" not in json.dumps(CLIENT_PROGRAMS[client].document(OPEN))


def test_a_command_line_says_the_same_as_the_document() -> None:
    lines = {
        name: (program.command(OPEN), program.command(CLOSED))
        for name, program in CLIENT_PROGRAMS.items()
        if program.command is not None
    }

    assert lines["claude-code"] == (
        f"claude mcp add --transport http review {URL}",
        (
            "claude mcp add --transport http review https://tools.example.com/api/mcp"
            ' --header "Authorization: Bearer $TOOLGATE_KEY"'
        ),
    )
    assert [json.loads(shlex.split(line)[2]) for line in lines["vscode"]] == [
        {"name": "review", **CLIENT_PROGRAMS["vscode"].entry(door)} for door in (OPEN, CLOSED)
    ]
    assert lines.keys() == {"claude-code", "vscode"}


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        ("http://10.0.0.5:8080/api/mcp", True),
        ("http://localhost.example/api/mcp", True),
        ("http://127.0.0.1.example:80/api/mcp", True),
        ("http://localhost:8080/api/mcp", False),
        ("http://127.0.0.1/api/mcp", False),
        ("https://tools.example.com/api/mcp", False),
    ],
)
def test_the_bridge_needs_an_option_when_plain_http_leaves_the_machine(url: str, *, is_plain: bool) -> None:
    entry = CLIENT_PROGRAMS["claude-desktop"].entry(GatewayEndpoint(name="x", url=url))

    assert entry["args"] == ["-y", "mcp-remote", url, *(["--allow-http"] if is_plain else [])]


@pytest.mark.parametrize(
    ("client", "platform", "path"),
    [
        ("claude-code", "linux", ".claude.json"),
        ("claude-desktop", "linux", ".config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("cursor", "darwin", ".cursor/mcp.json"),
        ("vscode", "linux", ".config/Code/User/mcp.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("windsurf", "linux", ".codeium/windsurf/mcp_config.json"),
        ("generic", "linux", None),
    ],
)
def test_each_client_keeps_its_settings_in_its_own_place(
    client: ClientKind, platform: str, path: str | None
) -> None:
    assert CLIENT_PROGRAMS[client].file_below_home(platform) == path


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({"task": "review"}, "", id="a task alone"),
        pytest.param({"servers": ""}, "", id="no server"),
        pytest.param(
            {"servers": "git,time"},
            "Follows its packages: new tools of `git` and `time` appear automatically.",
            id="whole packages",
        ),
        pytest.param(
            {"servers": "git", "tools": "git.git_log"},
            "Frozen list: 1 named tool; new tools do not appear.",
            id="named tools",
        ),
        pytest.param(
            {"tools": "git.*"},
            "Follows its packages: new tools of `git` that match appear automatically.",
            id="a pattern",
        ),
        pytest.param(
            {"tools": "git.*,time.now,time.zone"},
            "Follows its packages: new tools of `git` that match appear automatically. "
            "Frozen list for the rest: 2 named tools; new tools do not appear.",
            id="both",
        ),
    ],
)
def test_a_selection_says_whether_new_tools_appear(query: dict[str, str], expected: str) -> None:
    assert describe_selection(query) == expected


def test_a_url_that_some_clients_do_not_take_says_what_to_do() -> None:
    names = ",".join(f"excel-tools.create_workbook_{number}" for number in range(200))
    warning = warn_about_length(f"{URL}?tools={names}")

    assert warn_about_length("x" * LONG_URL_CHARS) is None
    assert warning is not None
    assert warning.startswith("the URL has 6,334 characters, and some clients accept at most 4,000: ")
    assert "`?servers=`" in warning
