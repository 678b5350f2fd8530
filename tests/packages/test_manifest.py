"""The manifest of version 2: what is taken, what is refused and how that is lines."""

from typing import Any

import jsonschema
import msgspec
import pytest

from tests.packages.archive_samples import MANIFEST, TOOL, definition, encoded
from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.model.servers import PackageRef
from toolgate.packages.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    build_manifest_schema,
    build_server_body,
    encode_manifest,
    parse_manifest,
    replace_tools,
)
from toolgate.registry.records.body import MAX_PROBLEMS
from toolgate.registry.records.codec import parse_server

REF = PackageRef(version="1.2.0", sha256="0" * 64)
URL = {"transport": "streamable_http", "url": "https://mcp.example.com/mcp", "auth_ref": "token"}


def manifest(**members: Any) -> dict[str, Any]:
    """The sample with `members` changed; one that is `...` is left out."""
    return {name: value for name, value in (MANIFEST | members).items() if value is not ...}


def problems(**members: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRecord) as refusal:
        parse_manifest(encoded(manifest(**members)))
    return [(one["field"], one["problem"]) for one in refusal.value.data["problems"]]


def test_a_manifest_says_what_a_package_is() -> None:
    assert parse_manifest(encoded(MANIFEST)) == Manifest(
        id="excel-tools",
        name="Excel 工具集",
        version="1.2.0",
        description="Workbooks, made and read.",
        category="数据",
        tags=("excel", "电子表格"),
        schema_version="v2",
        source="manifest",
        tools=(definition(),),
        run={"transport": "stdio", "stdio": {"command": "python3", "args": ["${PACKAGE_DIR}/server.py"]}},
    )


@pytest.mark.parametrize("version", ["v2", "2", 2])
def test_the_version_may_be_spelled_as_people_do(version: object) -> None:
    assert parse_manifest(encoded(manifest(manifestSchemaVersion=version))).schema_version == "v2"


@pytest.mark.requirement("004-13")
@pytest.mark.parametrize("version", ["v3", 3, 2.5, True, [], {}])
def test_a_version_of_the_format_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(InvalidRecord, match="not a version that this gateway supports"):
        parse_manifest(encoded(manifest(manifestSchemaVersion=version)))


def test_what_was_encoded_reads_as_the_same() -> None:
    for sample in (
        manifest(),
        manifest(tools=...),
        manifest(tools=..., toolsSummary=[{"name": "a", "description": "does a"}, {"name": "b"}]),
        manifest(run=URL, homepage="https://example.com/", license="MIT"),
        manifest(**{"x-team": {"name": "data"}, "$schema": "https://example.com/schema.json"}),
        manifest(tools=[]),
    ):
        parsed = parse_manifest(encoded(sample))
        again = parse_manifest(encode_manifest(parsed))

        assert [tool.digest for tool in again.tools] == [tool.digest for tool in parsed.tools]
        assert encode_manifest(again) == encode_manifest(parsed)
        assert (again.source, again.run, again.extensions) == (parsed.source, parsed.run, parsed.extensions)


def test_it_says_how_far_it_describes_its_tools() -> None:
    summary = [{"name": "a"}]

    assert parse_manifest(encoded(manifest(toolsSummary=summary))).source == "manifest"
    assert parse_manifest(encoded(manifest(tools=[]))).source == "manifest"
    assert parse_manifest(encoded(manifest(tools=..., toolsSummary=summary))).source == "summary"
    assert parse_manifest(encoded(manifest(tools=...))).source == "legacy"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param({"version": ...}, ("version", "is missing"), id="no version"),
        pytest.param({"run": {"transport": "stdio"}}, ("run.command", "is missing"), id="no command"),
        pytest.param(
            {"catgory": "data"},
            ("catgory", "is not a known field; did you mean `category`?"),
            id="a slip of the pen",
        ),
        pytest.param(
            {"colour": "red"},
            ("colour", "is not a known field; names of extensions begin with `x-`"),
            id="an unknown field",
        ),
        pytest.param(
            {"run": {"transport": "stdio", "command": "x", "shell": True}},
            ("run.shell", "is not a known field"),
            id="an unknown field inside",
        ),
        pytest.param(
            {"tools": [TOOL, {"name": "b"}]},
            ("tools[1].inputSchema", "is missing"),
            id="a tool without schema",
        ),
        pytest.param(
            {"tools": [{**TOOL, "name": "a b"}]},
            ("tools[0].name", "a tool's name has 1 to 128 characters of `A-Z a-z 0-9 _ . -`"),
            id="no name of a tool",
        ),
        pytest.param(
            {"tools": [TOOL, {**TOOL, "name": "CREATE_workbook"}]},
            ("tools[1]", "has the same name as `tools[0]`"),
            id="two tools of one name",
        ),
        pytest.param(
            {"tools": [{**TOOL, "inputSchema": {"type": "object", "$ref": "https://evil.example/"}}]},
            ("tools[0]", "a `$ref` points outside its schema (`create_workbook`)"),
            id="a schema that a server may not have",
        ),
        pytest.param(
            {"toolsSummary": [{"name": "../a"}]},
            ("toolsSummary[0].name", "a tool's name has 1 to 128 characters of `A-Z a-z 0-9 _ . -`"),
            id="no name in a summary",
        ),
    ],
)
def test_each_problem_is_reported_with_its_place(members: dict[str, Any], expected: tuple[str, str]) -> None:
    assert problems(**members) == [expected]


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        id="A", version="1..0", tags="x", tools=[{"name": "!"}, {**TOOL, "inputSchema": {"type": 1}}]
    )

    assert {place for place, _ in found} == {
        "id",
        "version",
        "tags",
        "tools[0].name",
        "tools[0].inputSchema",
        "tools[1]",
    }


@pytest.mark.parametrize(
    "text", ["../evil", "a/b", "a\\b", "..", ".", "", "/etc", "a\0b", "a\nb", "x" * 65, "-1"]
)
@pytest.mark.parametrize("field", ["id", "version"])
def test_a_name_or_version_that_leads_elsewhere_is_refused(field: str, text: str) -> None:
    """FIL-3"""
    assert [place for place, _ in problems(**{field: text})] == [field]


def test_a_manifest_is_bounded() -> None:
    with pytest.raises(BodyTooLarge):
        parse_manifest(b" " * (MAX_MANIFEST_BYTES + 1))
    tools = [{"name": f"t{number}", "inputSchema": {}} for number in range(MAX_DEFINITIONS + 1)]
    assert [place for place, _ in problems(tools=tools)] == ["tools"]
    assert len(problems(tools=[{}] * 5_000)) == MAX_PROBLEMS
    assert len(problems(**{f"odd{number}": 1 for number in range(5_000)})) == MAX_PROBLEMS
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]
    with pytest.raises(InvalidRecord, match="nested deeper"):
        parse_manifest(encoded(manifest(**{"x-deep": deep})))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1e9999}'],
)
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRecord):
        parse_manifest(content)


def test_its_server_is_a_valid_record() -> None:
    record = parse_server(build_server_body(parse_manifest(encoded(MANIFEST)), REF))

    assert (record.server_id, record.display_name, record.category) == ("excel-tools", "Excel 工具集", "数据")
    assert (record.tags, record.package, record.allowed_tools) == (("excel", "电子表格"), REF, ())
    remote = parse_server(build_server_body(parse_manifest(encoded(manifest(run=URL))), REF))
    assert remote.http is not None
    assert (remote.transport, remote.http.url) == ("streamable_http", "https://mcp.example.com/mcp")


def test_without_a_way_to_run_it_there_is_no_server() -> None:
    with pytest.raises(InvalidRecord, match="has no `run`"):
        build_server_body(Manifest(id="a", version="1"), REF)


@pytest.mark.requirement("004-19")
def test_tools_that_a_server_listed_become_its_declarations() -> None:
    draft = parse_manifest(encoded(manifest(tools=...)))
    tool = definition(annotations={"readOnlyHint": True}, title="新建", _meta={"a": 1})

    published = parse_manifest(encode_manifest(replace_tools(draft, [tool])))

    assert (published.source, [one.digest for one in published.tools]) == ("manifest", [tool.digest])
    assert msgspec.json.decode(published.tools[0].raw)["_meta"] == {"a": 1}


def test_the_published_schema_takes_what_the_gateway_takes_and_no_slips() -> None:
    schema = build_manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    for good in (
        manifest(),
        manifest(run=...),
        manifest(run=URL),
        manifest(**{"x-a": 1, "$schema": "https://example.com/"}),
        manifest(tools=[{**TOOL, "annotations": {}, "icons": [], "_meta": {}}]),
    ):
        parse_manifest(encoded(good))
        assert list(validator.iter_errors(good)) == []
    for bad in (
        manifest(id="../evil"),
        manifest(version="1/2"),
        manifest(catgory="data"),
        manifest(tools=[{"name": "a"}]),
        manifest(tools=[{"name": "a b", "inputSchema": {}}]),
        manifest(run={"transport": "stdio", "url": "https://example.com"}),
        manifest(manifestSchemaVersion="v3"),
    ):
        with pytest.raises(InvalidRecord):
            parse_manifest(encoded(bad))
        assert list(validator.iter_errors(bad)) != [], bad
