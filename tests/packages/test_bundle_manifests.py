"""MCP bundles become packages: their launch, their form for the user, their tools."""

import io
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.packages.archive_samples import encoded, good_tar, inspect_archive
from toolgate.errors import InvalidRecord
from toolgate.model.servers import PackageRef
from toolgate.packages.archive import normalize_archive, unpack_archive
from toolgate.packages.connector import resolve_launch
from toolgate.packages.foreign_manifests import convert_bundle, is_bundle_manifest
from toolgate.packages.manifest import Manifest, build_server_body, parse_manifest
from toolgate.registry.records.codec import parse_server

BUNDLE: dict[str, Any] = {
    "manifest_version": "0.3",
    "name": "My MCP Extension",
    "display_name": "My Awesome\u200b Extension",
    "version": "1.0.0",
    "description": "Searches files.",
    "author": {"name": "Ada"},
    "keywords": ["files", " ", 7, "search"],
    "license": "MIT",
    "tools": [{"name": "search_files", "description": "Search for files"}, {"name": "bad name"}, "odd"],
    "server": {
        "type": "node",
        "entry_point": "server/index.js",
        "mcp_config": {
            "command": "node",
            "args": ["${__dirname}/server/index.js", "--max=${user_config.max_size}"],
            "env": {"API_KEY": "${user_config.api_key}", "PLACE": "${DOCUMENTS}${/}x", "LITERAL": "${OTHER}"},
        },
    },
    "user_config": {
        "api_key": {"type": "string", "sensitive": True, "required": True, "default": "hunter2"},
        "max_size": {"type": "number", "default": 10},
    },
}


def converted(**members: Any) -> Manifest:
    return parse_manifest(convert_bundle(encoded(BUNDLE | members)))


def launch(config: dict[str, Any] | None = None, **members: Any) -> Any:
    server = {"type": "node", "entry_point": "a/b", **members.pop("server", {})}
    if config is not None:
        server["mcp_config"] = config
    return converted(server=server, **members).run["stdio"]


def argument(option: dict[str, Any], key: str = "value") -> str:
    config = {"command": "x", "args": [f"${{user_config.{key}}}"]}
    found: str = launch(config, user_config={key: option})["args"][0]
    return found


def test_a_bundle_is_a_package() -> None:
    manifest = converted()

    assert (manifest.id, manifest.name, manifest.version) == (
        "my-mcp-extension",
        "My Awesome Extension",
        "1.0.0",
    )
    assert (manifest.tags, manifest.license, manifest.source) == (("files", "search"), "MIT", "summary")
    assert [(tool.name, tool.description) for tool in manifest.tools] == [
        ("search_files", "Search for files")
    ]
    assert manifest.run == {
        "transport": "stdio",
        "stdio": {
            "command": "node",
            "args": ["${PACKAGE_DIR}/server/index.js", "--max=${ENV:MY_MCP_EXTENSION_MAX_SIZE:-10}"],
            "env": {
                "API_KEY": "${ENV:MY_MCP_EXTENSION_API_KEY}",
                "PLACE": "${ENV:HOME}/Documents/x",
                "LITERAL": "${OTHER}",
            },
        },
    }
    parse_server(build_server_body(manifest, PackageRef(version="1.0.0", sha256="0" * 64)))


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3", "0.4"])
@pytest.mark.parametrize("field", ["manifest_version", "dxt_version"])
def test_all_versions_are_read(field: str, version: str) -> None:
    bundle = {name: value for name, value in BUNDLE.items() if name != "manifest_version"}

    assert parse_manifest(convert_bundle(encoded(bundle | {field: version}))).id == "my-mcp-extension"


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"manifest_version": "9"}, "an unsupported version"),
        ({"compatibility": {"platforms": ["darwin", "win32"]}}, "does not support Linux"),
        ({"server": {"type": "cobol"}}, "has no command for its server"),
        ({"server": None}, "has no command for its server"),
        ({"name": "!!!"}, "`id`"),
        ({"version": "../1"}, "`version`"),
        ({"version": None}, "`version`"),
    ],
)
def test_a_bundle_that_cannot_run_here_is_refused(members: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRecord, match=problem):
        converted(**members)


def test_a_bundle_for_linux_too_is_taken() -> None:
    assert converted(compatibility={"platforms": ["darwin", "linux"]}).id == "my-mcp-extension"


def test_what_linux_has_of_its_own_goes_before() -> None:
    own = {"command": "./run", "args": ["-l"], "env": {"B": "2"}}
    config = {"command": "run.exe", "args": ["-w"], "env": {"A": "1"}, "platform_overrides": {"linux": own}}

    assert launch(config) == {"command": "./run", "args": ["-l"], "env": {"A": "1", "B": "2"}}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("node", {"command": "node", "args": ["${PACKAGE_DIR}/a/b"]}),
        ("python", {"command": "python3", "args": ["${PACKAGE_DIR}/a/b"]}),
        ("uv", {"command": "uv", "args": ["run", "--directory", "${PACKAGE_DIR}", "${PACKAGE_DIR}/a/b"]}),
        ("binary", {"command": "./a/b"}),
    ],
)
def test_a_bundle_that_only_says_what_it_is_runs_as_usual(kind: str, expected: dict[str, Any]) -> None:
    assert launch(server={"type": kind}) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("${__dirname}/server/tool", "./server/tool"),
        ("server/tool", "./server/tool"),
        ("./server/tool", "./server/tool"),
        ("/usr/bin/env", "/usr/bin/env"),
        ("python", "python"),
        ("${HOME}/bin/tool", "${ENV:HOME}/bin/tool"),
    ],
)
def test_a_program_of_the_bundle_is_named_from_its_directory(command: str, expected: str) -> None:
    assert launch({"command": command})["command"] == expected


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        pytest.param({"required": True}, "${ENV:MY_MCP_EXTENSION_VALUE}", id="required"),
        pytest.param({}, "${ENV:MY_MCP_EXTENSION_VALUE:-}", id="optional"),
        pytest.param({"default": "a b"}, "${ENV:MY_MCP_EXTENSION_VALUE:-a b}", id="a default"),
        pytest.param({"default": True}, "${ENV:MY_MCP_EXTENSION_VALUE:-true}", id="a switch"),
        pytest.param({"default": 0.5}, "${ENV:MY_MCP_EXTENSION_VALUE:-0.5}", id="a number"),
        pytest.param({"default": ["one"]}, "${ENV:MY_MCP_EXTENSION_VALUE:-one}", id="one of many"),
        pytest.param({"default": ["a", "b"]}, "${ENV:MY_MCP_EXTENSION_VALUE}", id="several"),
        pytest.param(
            {"default": "${HOME}/x"}, "${ENV:MY_MCP_EXTENSION_VALUE}", id="a default with a variable"
        ),
        pytest.param(
            {"default": "hunter2", "sensitive": True, "required": True},
            "${ENV:MY_MCP_EXTENSION_VALUE}",
            id="a secret",
        ),
        pytest.param(
            {"default": "hunter2", "sensitive": True},
            "${ENV:MY_MCP_EXTENSION_VALUE:-}",
            id="an optional secret",
        ),
    ],
)
def test_what_a_user_would_fill_in_comes_from_the_node(option: dict[str, Any], expected: str) -> None:
    assert argument(option) == expected


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("my-mcp-extension_key", "MY_MCP_EXTENSION_KEY"),
        ("api.key", "MY_MCP_EXTENSION_API_KEY"),
        ("密钥", "MY_MCP_EXTENSION_VALUE"),
    ],
)
def test_a_variable_is_named_for_its_bundle(key: str, variable: str) -> None:
    assert argument({"required": True}, key) == f"${{ENV:{variable}}}"


def test_a_name_that_begins_with_a_digit_is_still_a_variable() -> None:
    config = {"command": "x", "args": ["${user_config.k}"]}

    assert launch(config, name="7zip", user_config={"k": {"required": True}})["args"] == ["${ENV:_7ZIP_K}"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"{", b'{"manifestSchemaVersion": "v2", "manifest_version": 1}']
)
def test_what_is_no_manifest_of_a_bundle_is_not_taken_for_one(content: bytes) -> None:
    assert not is_bundle_manifest(content)


def test_a_manifest_with_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="is not a JSON object"):
        convert_bundle(b'{"manifest_version": "0.3", "x": 1e9999}')


BINARY = {"command": "${__dirname}/server/tool", "args": ["${__dirname}/data"]}


def bundle(manifest: dict[str, Any] = BUNDLE) -> bytes:
    """As `mcpb pack` writes one: modes of Unix, no directories."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in [
            ("manifest.json", encoded(manifest), 0o644),
            ("server/index.js", b"//", 0o644),
            ("server/tool", b'#!/bin/sh\necho "$PWD" "$1"\n', 0o755),
        ]:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def test_a_bundle_is_kept_as_an_archive_of_ours(tmp_path: Path) -> None:
    target, again = io.BytesIO(), io.BytesIO()

    inspected = normalize_archive(io.BytesIO(bundle()), target)
    normalize_archive(io.BytesIO(bundle()), again)
    unpack_archive(target, tmp_path / "package")

    assert target.getvalue() == again.getvalue()
    assert inspect_archive(target).manifest == inspected.manifest
    assert parse_manifest(inspected.manifest).id == "my-mcp-extension"
    assert (tmp_path / "package" / "server" / "tool").stat().st_mode & 0o777 == 0o755
    assert (
        msgspec.json.decode((tmp_path / "package" / "manifest.json").read_bytes())["id"] == "my-mcp-extension"
    )


def test_a_program_of_a_bundle_runs_from_its_files(tmp_path: Path) -> None:
    server = {"type": "binary", "entry_point": "server/tool", "mcp_config": BINARY}
    target = io.BytesIO()
    inspected = normalize_archive(io.BytesIO(bundle(BUNDLE | {"server": server})), target)
    unpack_archive(target, tmp_path / "package")
    body = build_server_body(parse_manifest(inspected.manifest), PackageRef(version="1.0.0", sha256="0" * 64))

    launch = parse_server(body).stdio
    assert launch is not None
    within = resolve_launch(launch, tmp_path / "package")
    ran = subprocess.run([within.command, *within.args], cwd=within.cwd, capture_output=True, check=True)

    assert ran.stdout.decode() == f"{tmp_path}/package {tmp_path}/package/data\n"


def test_an_archive_of_ours_is_kept_byte_for_byte() -> None:
    target = io.BytesIO()

    normalize_archive(io.BytesIO(good_tar()), target)

    assert target.getvalue() == good_tar()
