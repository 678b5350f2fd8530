"""Definitions of other programs, read as our bodies."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import grows_with_length
from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

CLAUDE_CODE = """
{"mcpServers": {
  "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {"LEVEL": "${LEVEL:-info}"}},
  "GitHub (work)": {
    "type": "http", "url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer ${PAT}"}
  },
  "github-work": {"type": "sse", "url": "https://api.example.com/sse"}
}}
"""
VS_CODE = """
{
  // servers of this workspace
  "inputs": [{"id": "api-token", "type": "promptString", "password": true}],
  "servers": {
    "fs": {
      "command": "npx", /* with one argument */
      "args": ["https://not/a//comment", "${workspaceFolder}",],
      "env": {"TOKEN": "${input:api-token}", "HOME_URL": "${env:HOME_URL}"},
    },
  },
}
"""
WINDSURF = '{"mcpServers": {"web": {"serverUrl": "https://x/mcp", "disabled": true}}}'
VS_CODE_SETTINGS = '{"mcp": {"servers": {"fs": {"command": "fs"}}}}'


@pytest.mark.parametrize("member", ["mcpServers", "registry"])
@pytest.mark.parametrize("depth", [100, 480, 900, 100_000])
def test_no_depth_exhausts_a_reader(member: str, depth: int) -> None:
    text = f'{{"{member}": {{"a": {{"image": "x", "command": "x", "args": {"[" * depth}{"]" * depth}}}}}}}'

    with suppress(InvalidRecord):
        parse_imports(text)


@given(st.text() | st.binary().map(lambda sent: sent.decode("utf-8", "surrogateescape")))
def test_any_other_text_is_refused_and_no_more(text: str) -> None:
    for form in ("auto", "docker"):
        with suppress(InvalidRecord):
            parse_imports(text, form)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            CLAUDE_CODE,
            [
                {
                    "server_id": "git",
                    "transport": "stdio",
                    "stdio": {
                        "command": "uvx",
                        "args": ["mcp-server-git"],
                        "env": {"LEVEL": "${ENV:LEVEL:-info}"},
                    },
                },
                {
                    "server_id": "github-work",
                    "transport": "streamable_http",
                    "http": {
                        "url": "https://api.example.com/mcp",
                        "headers": {"Authorization": "Bearer ${ENV:PAT}"},
                    },
                    "display_name": "GitHub (work)",
                },
                {
                    "server_id": "github-work-2",
                    "transport": "http_sse_legacy",
                    "http": {"url": "https://api.example.com/sse"},
                    "display_name": "github-work",
                },
            ],
            id="Claude Code",
        ),
        pytest.param(
            VS_CODE,
            [
                {
                    "server_id": "fs",
                    "transport": "stdio",
                    "stdio": {
                        "command": "npx",
                        "args": ["https://not/a//comment", "${ENV:workspaceFolder}"],
                        "env": {"TOKEN": "${ENV:API_TOKEN}", "HOME_URL": "${ENV:HOME_URL}"},
                    },
                }
            ],
            id="VS Code, with comments",
        ),
        pytest.param(
            WINDSURF,
            [
                {
                    "server_id": "web",
                    "transport": "streamable_http",
                    "http": {"url": "https://x/mcp"},
                    "enabled": False,
                }
            ],
            id="Windsurf",
        ),
        pytest.param(
            VS_CODE_SETTINGS,
            [{"server_id": "fs", "transport": "stdio", "stdio": {"command": "fs"}}],
            id="settings of VS Code",
        ),
        pytest.param('{"mcpServers": {}}', [], id="none"),
    ],
)
def test_the_files_of_other_programs(text: str, expected: list[dict[str, Any]]) -> None:
    bodies = parse_imports(text, "mcpServers").bodies

    assert bodies == expected
    assert [parse_server(body).server_id for body in bodies] == [body["server_id"] for body in expected]


def test_a_name_of_any_kind_becomes_a_server_id() -> None:
    names = ["Ünï", "日本", "日本語", "a" * 90, "a" * 91, "--x--", "__"]
    text = json.dumps({"mcpServers": {name: {"command": "x"} for name in names}})

    ids = [parse_server(body).server_id for body in parse_imports(text, "mcpServers").bodies]

    assert ids == ["n", "server", "server-2", "a" * 37, f"{'a' * 37}-2", "x", "server-3"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"servers": [1]}', '{"mcpServers": {"a": 1}}', "{" * 100_000]
)
def test_a_file_without_servers_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord):
        parse_imports(text, "mcpServers")


@pytest.mark.parametrize("part", ["a", '"a\\"b"', "'a'"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_read(part: str) -> None:
    key = ".".join([part] * 33)
    for text in (f"{key} = 1", f"x = 1\n[[ {key} ]]", f"x = [1, {{{key} = 1}}]"):
        with pytest.raises(InvalidRecord, match="more than 32 parts"):
            parse_imports(text, "auto")


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        pytest.param("{", "/* ", "", id="unclosed comments"),
        pytest.param("{", '"\\', "", id="unclosed strings"),
        pytest.param(
            '{"mcpServers": {"a": {"command": "a", "args": ["',
            "${A:-",
            '"]}}}',
            id="unclosed references",
        ),
    ],
)
def test_unclosed_text_is_read_in_linear_time(before: str, word: str, after: str) -> None:
    def read(times: int) -> None:
        with suppress(InvalidRecord):
            parse_imports(before + word * times + after, "auto")

    assert grows_with_length(read, 250)
