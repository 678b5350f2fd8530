"""Records as `server.json`: what can be published is, comes back as it was, and holds no secret."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.official import SERVER, check_official
from toolgate.errors import InvalidRecord
from toolgate.redaction.records import redact_server
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.interchange.server_json import PublishedIdentity, encode_server_json
from toolgate.registry.records.codec import parse_server

IDENTITY = PublishedIdentity(
    name="com.example/weather", version="1.2.0", title="Weather", description="It rains."
)
SECRET = "hunter2-hunter2"


def export(body: dict[str, Any]) -> dict[str, Any]:
    """Every export a test looks at has been held against the official documents, and holds no secret."""
    parse_server({"server_id": "weather", **body})
    found = encode_server_json(IDENTITY, redact_server(body))
    check_official(SERVER, found)

    assert SECRET not in json.dumps(found)
    return found


def imported(document: dict[str, Any]) -> dict[str, Any]:
    (body,) = parse_imports(document).bodies
    parse_server(body)
    return {name: body[name] for name in ("transport", "stdio", "http") if name in body}


def stdio(command: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"transport": "stdio", "stdio": {"command": command, "args": list(args), **more}}


def http(url: str, transport: str = "streamable_http", **more: Any) -> dict[str, Any]:
    return {"transport": transport, "http": {"url": url, **more}}


def is_nothing_hidden(body: dict[str, Any]) -> bool:
    return redact_server(body) == body


variables = st.from_regex(r"[A-Z](_?[A-Z0-9]){0,6}", fullmatch=True)
words = st.from_regex(r"[a-z0-9/._+-]{1,6}", fullmatch=True)
references = variables.map(lambda name: f"${{ENV:{name}}}")
defaults = st.tuples(variables, words).map(lambda pair: f"${{ENV:{pair[0]}:-{pair[1]}}}")
# Of a variable that one text names twice, a `server.json` could say one thing only.
texts = st.lists(
    words | references | defaults | st.sampled_from(["{x}", "{", "}", " ", "é", "$"]),
    min_size=1,
    max_size=4,
    unique_by=lambda part: part.partition(":-")[0].removesuffix("}"),
).map("".join)
names = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)
versions = st.sampled_from(["", "1.2.3", "2026.1"])


@st.composite
def launches(draw: st.DrawFn) -> dict[str, Any]:
    """Servers that are packages, in the form in which an import writes them."""
    env = draw(st.dictionaries(variables, texts, max_size=3))
    name, version, inner = draw(names), draw(versions), draw(st.lists(texts, max_size=3))
    handed_on = [part for one in env for part in ("-e", one)]
    command, *before, package = draw(
        st.sampled_from(
            [
                ("npx", "-y", f"@ada/{name}@{version or 'latest'}"),
                ("bunx", name),
                ("uvx", "--python=3.12", f"{name}=={version}" if version else name),
                ("pipx", "run", name),
                ("dnx", "--yes", f"{name}@1"),
                ("docker", "run", "--rm", "-i", *handed_on, f"ghcr.io:5000/ada/{name}:{version or 'new'}"),
                ("podman", "run", "--rm", "-i", *handed_on, "--init", "-e", "A=b", name),
            ]
        )
    )
    return stdio(command, *before, package, *inner, **({"env": env} if env else {}))


@given(launches().filter(is_nothing_hidden))
def test_a_package_that_is_exported_and_imported_again_is_what_it_was(body: dict[str, Any]) -> None:
    assert imported(export(body)) == body


@given(
    st.sampled_from(["streamable_http", "http_sse_legacy"]),
    st.lists(words | references | defaults, max_size=3, unique_by=lambda part: part.partition(":-")[0][:7]),
    st.dictionaries(st.from_regex(r"[A-Z]-[a-z]{1,8}", fullmatch=True), references | words, max_size=3),
)
def test_a_remote_that_is_exported_and_imported_again_is_what_it_was(
    transport: str, path: list[str], headers: dict[str, str]
) -> None:
    body = http(
        f"https://mcp.example/{''.join(path)}", transport, **({"headers": headers} if headers else {})
    )

    if is_nothing_hidden(body):
        assert imported(export(body)) == body


def test_a_package_is_described_as_the_official_registry_knows_it() -> None:
    env = {"REGION": "${ENV:REGION:-eu}", "API_KEY": SECRET, "HOST": "${ENV:HOST}", "MODE": "fast"}
    found = export(stdio("npx", "-y", "@ada/weather@1.2.3", "--dir", "${ENV:DIR}", env=env, env_from=["TZ"]))

    assert found == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "com.example/weather",
        "title": "Weather",
        "description": "It rains.",
        "version": "1.2.0",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@ada/weather",
                "version": "1.2.3",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": "--dir"},
                    {"type": "positional", "value": "{DIR}", "variables": {"DIR": {"isRequired": True}}},
                ],
                "environmentVariables": [
                    {"name": "REGION", "value": "{REGION}", "variables": {"REGION": {"default": "eu"}}},
                    {"name": "API_KEY", "isRequired": True, "isSecret": True},
                    {"name": "HOST", "isRequired": True, "isSecret": False},
                    {"name": "MODE", "value": "fast"},
                    {"name": "TZ", "isRequired": True, "isSecret": False},
                ],
            }
        ],
    }


def test_what_is_masked_is_to_be_filled_in() -> None:
    args = ("--token", SECRET, f"--api-key={SECRET}", f"https://ada:{SECRET}@mcp.example/")
    found = export(stdio("uvx", "weather", *args, env={"DB_PASSWORD": f"${{ENV:DB_PASSWORD:-{SECRET}}}"}))
    (package,) = found["packages"]

    assert [one["value"] for one in package["packageArguments"]] == [
        *("--token", "{SECRET}", "--api-key={SECRET}", "https://{SECRET}@mcp.example/")
    ]
    assert package["packageArguments"][1]["variables"] == {"SECRET": {"isRequired": True, "isSecret": True}}
    assert package["environmentVariables"][0]["variables"] == {
        "DB_PASSWORD": {"isRequired": True, "isSecret": True}
    }


def test_a_remote_asks_for_what_its_record_hides_or_refers_to() -> None:
    body = http("https://mcp.example/?key=" + SECRET, headers={"X-Api-Key": SECRET}, auth_ref="weather.token")
    (remote,) = export(body)["remotes"]

    assert remote["url"] == "https://mcp.example/?key={SECRET}"
    assert remote["headers"] == [
        {"name": "X-Api-Key", "isRequired": True, "isSecret": True},
        {
            "name": "Authorization",
            "value": "Bearer {weather_token}",
            "variables": {"weather_token": {"isRequired": True, "isSecret": True}},
        },
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(stdio("git-mcp"), id="a program of the node"),
        pytest.param(stdio("/usr/bin/npx", "weather"), id="a path"),
        pytest.param(stdio("npx"), id="no package"),
        pytest.param(stdio("docker", "compose", "up"), id="no container"),
        pytest.param(stdio("uvx", "--from", "git+https://x.example", "weather"), id="an option with a value"),
        pytest.param(stdio("npx", "-y", "${ENV:PACKAGE}"), id="a package to be filled in"),
        pytest.param(
            stdio("npx", "-y", "weather") | {"package": {"version": "1", "sha256": "0" * 64}},
            id="a package that is kept here",
        ),
    ],
)
def test_a_program_that_others_could_not_start_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        export(body)


def test_titles_and_descriptions_fit_the_official_limits() -> None:
    long = PublishedIdentity(name="com.example/weather", version="1", title="t" * 300)
    found = encode_server_json(long, stdio("npx", "-y", "weather"))

    check_official(SERVER, found)
    assert found["description"] == "t" * 100
