"""Packages from before version 2 keep working: what is understood of their manifests."""

from typing import Any

import pytest

from tests.packages.archive_samples import TOOL, definition, encoded
from toolgate.errors import InvalidRecord
from toolgate.model.servers import PackageRef
from toolgate.packages.manifest import Manifest, build_server_body, parse_manifest
from toolgate.registry.records.codec import parse_server

SUMMARY = {"create_workbook": "创建", "read_sheet": ""}


def old(**members: Any) -> Manifest:
    return parse_manifest(encoded({"id": "excel-tools", **members}))


@pytest.mark.requirement("004-21")
def test_nothing_at_all_is_a_placeholder() -> None:
    assert old() == Manifest(id="excel-tools", version="0.0.0", schema_version="legacy", source="legacy")


@pytest.mark.requirement("004-13")
@pytest.mark.parametrize("version", [None, "v1", "1", 1, "legacy"])
def test_versions_before_the_second_are_read_as_old(version: object) -> None:
    assert old(manifestSchemaVersion=version).schema_version == "legacy"


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param([{"name": name, "description": text} for name, text in SUMMARY.items()], id="objects"),
        pytest.param(SUMMARY, id="names to descriptions"),
        pytest.param({name: {"description": text} for name, text in SUMMARY.items()}, id="names to objects"),
    ],
)
def test_a_summary_with_descriptions_is_read(summary: object) -> None:
    for manifest in (old(toolsSummary=summary), old(tools=summary), old(tools_summary=summary)):
        assert {tool.name: tool.description for tool in manifest.tools} == SUMMARY
        assert [tool.digest for tool in manifest.tools] == ["", ""]
        assert (manifest.source, manifest.schema_version) == ("summary", "legacy")


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param(["create_workbook", "read_sheet"], id="names"),
        pytest.param("create_workbook, read_sheet", id="a text"),
        pytest.param("create_workbook、read_sheet", id="a Chinese text"),
        pytest.param(
            ["create_workbook", "no name", 7, None, {}, "CREATE_workbook", "read_sheet"], id="odd ones"
        ),
    ],
)
def test_a_summary_of_names_is_read(summary: object) -> None:
    assert [tool.name for tool in old(toolsSummary=summary).tools] == ["create_workbook", "read_sheet"]


def test_full_definitions_without_a_version_are_taken_as_such() -> None:
    manifest = old(tools=[TOOL], toolsSummary=["other"])

    assert (manifest.source, [tool.digest for tool in manifest.tools]) == ("manifest", [definition().digest])


def test_where_one_definition_is_not_whole_all_are_a_summary() -> None:
    manifest = old(tools=[TOOL, {"name": "b", "inputSchema": {"$ref": "https://evil.example/"}}])

    assert (manifest.source, [tool.name for tool in manifest.tools]) == ("summary", ["create_workbook", "b"])


@pytest.mark.requirement("004-21")
def test_an_empty_list_leads_on_to_the_summary() -> None:
    assert [tool.name for tool in old(tools=[], toolsSummary=["a"]).tools] == ["a"]


@pytest.mark.parametrize(
    ("members", "command", "args"),
    [
        pytest.param({"command": "node", "args": ["server.js"]}, "node", ["server.js"], id="at the top"),
        pytest.param({"server": {"command": "uvx", "args": ["x"]}}, "uvx", ["x"], id="under server"),
        pytest.param({"mcp": {"command": "x"}}, "x", [], id="under mcp"),
        pytest.param({"runtime": {"command": ["node", "a b.js"]}}, "node", ["a b.js"], id="as a list"),
        pytest.param({"command": "python3 'a b.py' -v"}, "python3", ["a b.py", "-v"], id="as one text"),
        pytest.param({"command": "it's broken"}, "it's broken", [], id="as a text that cannot be split"),
        pytest.param({"server": "node", "run": {"command": "x"}}, "x", [], id="where the first is no object"),
    ],
)
def test_how_an_old_package_is_run(members: dict[str, Any], command: str, args: list[str]) -> None:
    record = parse_server(build_server_body(old(**members), PackageRef(version="0.0.0", sha256="0" * 64)))

    assert record.stdio is not None
    assert (record.stdio.command, list(record.stdio.args)) == (command, args)


def test_variables_of_other_programs_become_references() -> None:
    manifest = old(command="node", env={"KEY": "${API_KEY}"})

    assert manifest.run == {
        "transport": "stdio",
        "stdio": {"command": "node", "env": {"KEY": "${ENV:API_KEY}"}},
    }


def test_an_old_package_behind_a_url() -> None:
    assert old(server={"url": "https://example.com/sse", "type": "sse"}).run == {
        "transport": "http_sse_legacy",
        "http": {"url": "https://example.com/sse"},
    }


def test_an_id_may_be_its_name() -> None:
    assert parse_manifest(b'{"name": "sga_search"}').id == "sga_search"


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", "Excel 工具集", 7])
def test_but_no_name_that_leads_elsewhere(name: object) -> None:
    """FIL-3"""
    with pytest.raises(InvalidRecord, match="`id`"):
        parse_manifest(encoded({"name": name}))
    with pytest.raises(InvalidRecord, match="`version`"):
        old(version=name)
