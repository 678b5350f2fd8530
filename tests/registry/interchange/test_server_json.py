"""The official `server.json`: every kind of package and remote becomes a body that may be stored."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import parse_server


def server(**members: Any) -> dict[str, Any]:
    return {"name": "io.github.ada/weather", "description": "Weather.", "version": "1.0.0", **members}


def package(kind: str, identifier: str, **members: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "transport": {"type": "stdio"}, **members}


def stdio_of(**members: Any) -> Any:
    (body,) = parse_imports(server(**members)).bodies
    parse_server(body)
    return body["stdio"]


@pytest.mark.parametrize(
    ("sent", "command", "args"),
    [
        (package("npm", "@ada/weather", version="1.2.3"), "npx", ["-y", "@ada/weather@1.2.3"]),
        (package("npm", "@ada/weather", runtimeHint="bunx"), "bunx", ["@ada/weather"]),
        (package("npm", "@ada/weather", runtimeHint="/bin/sh"), "npx", ["-y", "@ada/weather"]),
        (package("pypi", "weather", version="2"), "uvx", ["weather==2"]),
        (package("oci", "ghcr.io/ada/w", version="3"), "docker", ["run", "--rm", "-i", "ghcr.io/ada/w:3"]),
        (
            package("oci", "host:5000/ada/w:3", version="4"),
            "docker",
            ["run", "--rm", "-i", "host:5000/ada/w:3"],
        ),
        (package("nuget", "Ada.Weather", version="1"), "dnx", ["--yes", "Ada.Weather@1"]),
    ],
)
def test_a_package_is_run_by_the_program_of_its_kind(
    sent: dict[str, Any], command: str, args: list[str]
) -> None:
    assert stdio_of(packages=[sent]) == {"command": command, "args": args}


def test_variables_become_references_unless_they_may_be_left_out() -> None:
    variables = [
        {"name": "API_KEY", "isSecret": True, "default": "publisher's own"},
        {"name": "REGION", "default": "eu"},
        {"name": "HOST", "isRequired": True},
        {"name": "MODE", "value": "fast"},
        {"name": "URL", "value": "https://{tenant-id}.example", "variables": {"tenant-id": {}}},
        {"name": "EXTRA"},
    ]
    found = stdio_of(packages=[package("oci", "w", environmentVariables=variables)])

    assert found["env"] == {
        "API_KEY": "${ENV:API_KEY}",
        "REGION": "${ENV:REGION:-eu}",
        "HOST": "${ENV:HOST}",
        "MODE": "fast",
        "URL": "https://${ENV:TENANT_ID}.example",
    }
    names = ("API_KEY", "REGION", "HOST", "MODE", "URL")
    assert found["args"] == ["run", "--rm", "-i", *(part for one in names for part in ("-e", one)), "w"]


def test_arguments_stand_around_the_package_in_their_order() -> None:
    found = stdio_of(
        packages=[
            package(
                "pypi",
                "weather",
                runtimeArguments=[{"type": "named", "name": "--python", "value": "3.12"}],
                packageArguments=[
                    {"type": "positional", "value": "serve"},
                    {"type": "named", "name": "--dir", "isRequired": True, "valueHint": "directory"},
                    {"type": "named", "name": "--verbose"},
                    {"type": "positional", "valueHint": "optional"},
                ],
            )
        ]
    )

    assert found["args"] == ["--python", "3.12", "weather", "serve", "--dir", "${ENV:DIR}", "--verbose"]


def test_a_remote_becomes_a_url_with_its_headers() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{region}.mcp.example/mcp",
        "variables": {"region": {"default": "eu"}},
        "headers": [
            {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}},
            {"name": "X-API-Key", "isSecret": True},
        ],
    }
    (body,) = parse_imports(server(remotes=[remote])).bodies
    parse_server(body)

    assert body == {
        "server_id": "weather",
        "display_name": "io.github.ada/weather",
        "transport": "streamable_http",
        "http": {
            "url": "https://${ENV:REGION:-eu}.mcp.example/mcp",
            "headers": {"Authorization": "Bearer ${ENV:TOKEN}", "X-API-Key": "${ENV:X_API_KEY}"},
        },
    }


def test_the_first_that_can_be_used_is_taken_packages_before_remotes() -> None:
    remote = {"type": "sse", "url": "https://mcp.example/sse"}
    listening = package("npm", "a", transport={"type": "streamable-http", "url": "http://localhost:1"})
    several = server(packages=[package("mcpb", "x"), listening, package("pypi", "b")], remotes=[remote])
    last = server(packages=[package("mcpb", "x")], remotes=[{"type": "ws"}, remote])

    assert parse_imports(several).bodies[0]["stdio"]["args"] == ["b"]
    assert parse_imports(last).bodies[0]["transport"] == "http_sse_legacy"


def test_what_cannot_be_used_is_skipped_with_all_its_reasons() -> None:
    found = parse_imports({"server": server(packages=[package("mcpb", "x"), {"registryType": "npm"}])})

    assert found.bodies == []
    assert found.skipped == {
        "io.github.ada/weather": (
            "packages of type `mcpb` are not supported; its npm package has no `identifier`"
        )
    }


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ({"name": "x"}, "server.json"),
        ([7], "server.json"),
        ({"transport": "stdio"}, "registry"),
        ([], "auto"),
        ("[", "auto"),
        ("a = ", "auto"),
        ("{" * 100_000, "auto"),
    ],
)
def test_what_is_none_of_these_is_refused(content: Any, form: Any) -> None:
    with pytest.raises(InvalidRecord):
        parse_imports(content, form)


def test_the_format_is_recognized_by_the_content() -> None:
    ours = 'server_id = "git"\ntransport = "stdio"\n'
    theirs = '// comment\n{"mcpServers": {"git": {"command": "git-mcp"},}}'

    assert parse_imports(ours).bodies == [{"server_id": "git", "transport": "stdio"}]
    assert parse_imports(theirs).bodies[0]["stdio"] == {"command": "git-mcp"}
    assert [
        one["server_id"] for one in parse_imports([server(packages=[package("pypi", "a")])] * 2).bodies
    ] == [
        "weather",
        "weather-2",
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"runtimeArguments": [{"type": "named", "name": "--privileged"}]},
        {"runtimeArguments": [{"type": "named", "name": "-v", "value": "/:/host"}]},
        {"runtimeArguments": [{"type": "positional", "value": "--network=host"}]},
        {"environmentVariables": [{"name": "DOCKER_HOST", "value": "tcp://evil.example"}]},
        {"environmentVariables": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]},
    ],
)
def test_a_file_does_not_decide_how_a_container_is_run(members: dict[str, Any]) -> None:
    """CVE-2026-55887."""
    found = parse_imports(server(packages=[package("oci", "w", **members)]))

    assert found.bodies == []
    assert len(found.skipped) == 1


def test_settings_that_a_container_may_get_are_kept() -> None:
    options = [{"type": "named", "name": "--init"}, {"type": "named", "name": "-e", "value": "A=b"}]
    found = stdio_of(packages=[package("oci", "w", runtimeArguments=options)])

    assert found["args"] == ["run", "--rm", "-i", "--init", "-e", "A=b", "w"]


def test_braces_that_name_no_variable_are_part_of_the_text() -> None:
    variables = [{"name": "A", "value": "{b} {c}", "variables": {"c": {}}}]

    assert stdio_of(packages=[package("pypi", "w", environmentVariables=variables)])["env"] == {
        "A": "{b} ${ENV:C}"
    }
