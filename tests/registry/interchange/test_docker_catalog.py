"""Catalogs of Docker's MCP gateway: what to run comes from them, how it is run does not."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server

CATALOG = """
version: 2
name: docker-mcp
displayName: Docker MCP Catalog
registry:
  atlassian:
    description: Tools for Confluence and Jira.
    title: Atlassian
    type: server
    image: mcp/atlassian@sha256:0000000000000000000000000000000000000000000000000000000000000000
    tools:
      - name: jira_search
    secrets:
      - name: atlassian.jira.api_token
        env: JIRA_API_TOKEN
        example: your_api_token
    env:
      - name: JIRA_URL
        value: '{{atlassian.jira.url}}'
      - name: DEBUG
        value: true
      - name: PORT
        value: 8080
    command:
      - --transport=stdio
      - --user={{atlassian.jira.username}}
    metadata:
      category: productivity
      tags: [atlassian, jira, jira]
  notion-remote:
    title: Notion
    type: remote
    remote:
      url: https://mcp.notion.com/mcp
      transport_type: streamable-http
      headers:
        Authorization: Bearer ${NOTION_TOKEN}
    secrets:
      - name: notion.token
        env: NOTION_TOKEN
    oauth:
      providers: [{provider: notion}]
  git moby:
    sseEndpoint: https://gitmcp.io/moby/moby
"""


def catalog(**server: Any) -> dict[str, Any]:
    return {"registry": {"one": {"image": "mcp/one"} | server}}


def args_of(**server: Any) -> Any:
    (body,) = parse_imports(catalog(**server)).bodies
    return body["stdio"]["args"]


def test_a_catalog_becomes_records_with_references_for_what_is_to_be_filled_in() -> None:
    found = parse_imports(CATALOG)
    for body in found.bodies:
        parse_server(body)

    assert found.bodies == [
        {
            "server_id": "atlassian",
            "transport": "stdio",
            "stdio": {
                "command": "docker",
                "args": [
                    *("run", "--rm", "-i", "-e", "JIRA_API_TOKEN"),
                    *("-e", "JIRA_URL=${ENV:ATLASSIAN_JIRA_URL}", "-e", "DEBUG=true", "-e", "PORT=8080"),
                    f"mcp/atlassian@sha256:{'0' * 64}",
                    *("--transport=stdio", "--user=${ENV:ATLASSIAN_JIRA_USERNAME}"),
                ],
                "env": {"JIRA_API_TOKEN": "${ENV:JIRA_API_TOKEN}"},
            },
            "tags": ["atlassian", "jira"],
            "category": "productivity",
            "display_name": "Atlassian",
        },
        {
            "server_id": "notion-remote",
            "transport": "streamable_http",
            "http": {
                "url": "https://mcp.notion.com/mcp",
                "headers": {"Authorization": "Bearer ${ENV:NOTION_TOKEN}"},
            },
            "display_name": "Notion",
        },
        {
            "server_id": "git-moby",
            "transport": "http_sse_legacy",
            "http": {"url": "https://gitmcp.io/moby/moby"},
        },
    ]
    assert found.skipped == {}
    assert found.warnings == ["`notion-remote` needs an OAuth login: add `http.oauth` to its record"]
    assert parse_imports(CATALOG, "docker") == found


@pytest.mark.parametrize(
    "member",
    [
        {"volumes": ["/:/host"]},
        {"user": "root"},
        {"privileged": True},
        {"extraHosts": ["evil:127.0.0.1"]},
        {"capAdd": ["SYS_ADMIN"]},
        {"devices": ["/dev/sda"]},
        {"network": "host"},
        {"entrypoint": ["sh"]},
    ],
)
def test_a_catalog_does_not_decide_how_a_container_is_run(member: dict[str, Any]) -> None:
    """CVE-2026-55887."""
    found = parse_imports(catalog(**member))

    assert found.bodies[0]["stdio"]["args"] == ["run", "--rm", "-i", "mcp/one"]
    (warning,) = found.warnings
    assert next(iter(member)) in warning


def test_no_value_of_a_catalog_is_a_variable_of_the_program_that_starts_the_container() -> None:
    (body,) = parse_imports(catalog(env=[{"name": "DOCKER_HOST", "value": "tcp://evil.example"}])).bodies

    assert body["stdio"] == {
        "command": "docker",
        "args": ["run", "--rm", "-i", "-e", "DOCKER_HOST=tcp://evil.example", "mcp/one"],
    }


def test_a_container_without_a_network_stays_without() -> None:
    assert args_of(disableNetwork=True) == ["run", "--rm", "-i", "--network=none", "mcp/one"]


def test_lists_to_be_filled_in_are_left_out_with_a_warning() -> None:
    found = parse_imports(
        catalog(command=["{{git.paths|volume|into}}", "serve"], env=[{"name": "A", "value": "{{a.b|into}}"}])
    )

    assert found.bodies[0]["stdio"]["args"] == ["run", "--rm", "-i", "mcp/one", "serve"]
    assert len(found.warnings) == 2


@pytest.mark.parametrize(
    "server",
    [
        pytest.param({"image": "--privileged"}, id="an option for an image"),
        pytest.param({"image": "a b"}, id="no image"),
        pytest.param({"image": ""}, id="nothing to run"),
        pytest.param({"type": "poci"}, id="tools that are containers"),
        pytest.param({"env": [{"name": "A=B --privileged", "value": ""}]}, id="no variable"),
        pytest.param({"secrets": [{"name": "x", "env": "-v"}]}, id="an option for a secret"),
        pytest.param({"env": [{"name": "A", "value": "${ENV:AWS_SECRET}"}]}, id="a reference"),
        pytest.param({"title": ["${ENV:A}"]}, id="a deep reference"),
        pytest.param({"command": ["***"]}, id="a mask"),
        pytest.param({"remote": {"url": "ftp://a"}}, id="no URL"),
        pytest.param({"remote": {"url": ["https://a"]}}, id="an invalid URL"),
        pytest.param({"remote": {"url": "https://a", "headers": {"A": "$HOME"}}}, id="no secret of its own"),
    ],
)
def test_one_that_cannot_be_used_is_skipped_and_the_others_are_not(server: dict[str, Any]) -> None:
    content = catalog(**server)
    content["registry"]["two"] = {"image": "mcp/two"}
    found = parse_imports(content)

    assert [body["server_id"] for body in found.bodies] == ["two"]
    assert list(found.skipped) == ["one"]


@pytest.mark.parametrize("content", ["registry: []", "registry:\n  a: b", "a: b", "- a", {"registry": 1}])
def test_what_is_no_catalog_is_refused(content: Any) -> None:
    with pytest.raises(InvalidRecord):
        parse_imports(content, "docker")


def test_a_list_of_the_official_registry_is_read_as_it_answers() -> None:
    remote = {"type": "streamable-http", "url": "https://a.example/mcp"}
    response = {
        "servers": [{"server": {"name": "com.example/a", "remotes": [remote]}, "_meta": {}}],
        "metadata": {"count": 1},
    }

    assert [body["server_id"] for body in parse_imports(response).bodies] == ["a"]
