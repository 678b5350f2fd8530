"""Lists as clients of both eras take them, with the official SDK's models as the judge."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)
from mcp_types.methods import parse_server_result

from tests.catalog.definition_samples import INPUT, JSON, REVISIONS, checked, tool
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.encoding import encode_definition, encode_listing, encode_page
from toolgate.catalog.listings import check_prompts, check_resources, check_templates
from toolgate.model.tools import ListKind, Revision, ToolDefinition

META = {"io.modelcontextprotocol/serverInfo": {"name": "toolgate", "version": "1"}}


def listed_by_sdk(definitions: list[ToolDefinition], era: Revision) -> list[str]:
    """The names the official SDK reads from a page of `definitions`: one fault, and it refuses the page."""
    tools = [encode_definition(each, f"fs.{each.ref.name}", revision=era) for each in definitions]
    page = encode_page("tools", tools, revision=era, next_cursor=None, ttl_ms=60_000, meta=META)
    result = parse_server_result("tools/list", REVISIONS[era], msgspec.json.decode(page))
    assert isinstance(result, ListToolsResult)
    return [each.name for each in result.tools]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_only_the_name_of_a_definition_changes(era: Revision) -> None:
    definition = checked(
        inputSchema=INPUT | {"$defs": {"a": {"$anchor": "x"}}}, **{"x-vendor": [1.5], "_meta": {"ui": {}}}
    )

    assert encode_definition(definition, "fs.read_file", revision=era) == (
        b'{"name":"fs.read_file","description":"Reads a file.","inputSchema":{"type":"object","properties":'
        b'{"path":{"type":"string"}},"$defs":{"a":{"$anchor":"x"}}},"x-vendor":[1.5],"_meta":{"ui":{}}}'
    )


def test_of_a_member_sent_twice_the_one_that_was_checked_is_listed() -> None:
    raw = b'{"name":"a","inputSchema":{"$ref":"http://sentinel.test"},"inputSchema":{"type":"object"}}'

    tools, _ = check_tools("fs", [raw])

    assert (
        encode_definition(tools["a"], "a", revision="modern")
        == b'{"name":"a","inputSchema":{"type":"object"}}'
    )


@pytest.mark.parametrize(
    ("schema", "legacy"),
    [
        pytest.param({"type": "array", "items": {}}, ..., id="an array is left out"),
        pytest.param({"$ref": "#/$defs/a", "$defs": {"a": {}}}, ..., id="a reference is left out"),
        pytest.param({"type": "object", "required": True}, ..., id="a malformed object is left out"),
        pytest.param(
            {"type": "object", "properties": {"a": True, "b": False, "c": {}}, "title": "kept"},
            {"type": "object", "properties": {"a": {}, "b": {"not": {}}, "c": {}}, "title": "kept"},
            id="boolean schemas are spelled out",
        ),
        pytest.param({"type": "object"}, {"type": "object"}, id="an object stays"),
    ],
)
def test_a_legacy_client_gets_an_output_schema_it_takes_or_none(schema: Any, legacy: Any) -> None:
    definition = checked(outputSchema=schema)

    assert encode_definition(definition, "read_file", revision="modern") == tool(outputSchema=schema)
    assert encode_definition(definition, "read_file", revision="legacy") == tool(outputSchema=legacy)


def test_a_legacy_client_gets_boolean_argument_schemas_spelled_out() -> None:
    definition = checked(inputSchema={"type": "object", "properties": {"any": True}})

    assert encode_definition(definition, "read_file", revision="legacy") == tool(
        inputSchema={"type": "object", "properties": {"any": {}}}
    )


def test_a_legacy_page_is_tools_and_cursor_only() -> None:
    page = encode_page("tools", [b"{}", b"{}"], revision="legacy", next_cursor='a"b', ttl_ms=5, meta={})

    assert page == b'{"tools":[{},{}],"nextCursor":"a\\"b"}'


def test_a_modern_page_is_private_and_says_how_long_it_keeps() -> None:
    page = encode_page("tools", [], revision="modern", next_cursor=None, ttl_ms=5, meta=META)

    assert page == (
        b'{"tools":[],"resultType":"complete","ttlMs":5,"cacheScope":"private",'
        b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolgate","version":"1"}}}'
    )


AWKWARD = [
    tool(name="no_schema", inputSchema=...),
    tool(name="empty_schema", inputSchema={}),
    tool(name="empty_list", inputSchema=[]),
    tool(name="no_type", inputSchema={"properties": {"a": {}}}),
    tool(name="types", inputSchema={"type": ["object", "null"]}),
    tool(name="booleans", inputSchema={"type": "object", "properties": {"a": True}}),
    tool(name="array_output", outputSchema={"type": "array"}),
    tool(name="reference_output", outputSchema={"$ref": "#/$defs/a", "$defs": {"a": {}}}),
    tool(name="list_output", outputSchema=[]),
    tool(name="odd_dialect_output", outputSchema={"$schema": 7}),
    tool(
        name="nulls",
        title=None,
        description=None,
        annotations=None,
        outputSchema=None,
        _meta=None,
        icons=None,
    ),
    tool(name="wrong_hint", annotations={"readOnlyHint": [], "title": 7}),
    tool(name="wrong_icons", icons=[{"sizes": 7}]),
    tool(name="wrong_execution", execution={"taskSupport": 7}),
    tool(name="wrong_meta", _meta="x"),
    tool(name="wrong_title", title={}),
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_official_sdk_takes_a_whole_list_of_awkward_tools(era: Revision) -> None:
    tools, quarantined = check_tools("fs", AWKWARD)

    assert quarantined == {}
    assert listed_by_sdk(list(tools.values()), era) == [f"fs.{name}" for name in tools]


MEMBERS = [
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "execution",
    "_meta",
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@given(members=st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4))
def test_whatever_passes_the_check_the_official_sdk_takes(members: dict[str, Any], era: Revision) -> None:
    tools, _ = check_tools("fs", [tool(**members)])

    assert listed_by_sdk(list(tools.values()), era) == [f"fs.{name}" for name in tools]


METHODS: dict[ListKind, str] = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
CHECKS = {"prompts": check_prompts, "resources": check_resources, "templates": check_templates}
NAMED_BY = {"prompts": "name", "resources": "uri", "templates": "uriTemplate"}


def test_a_listing_under_its_own_name_is_the_very_same_object() -> None:
    raw = b' {"name" : "greet"} '
    (listing,) = check_prompts("fs", [raw])[0].values()

    assert encode_listing(listing, "greet", kind="prompts") is listing.raw


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        ("prompts", b'{"name":"a","x":[1 ]}', b'{"name":"fs.a","x":[1 ]}'),
        ("resources", b'{"uri":"a:","name":"n"}', b'{"uri":"fs.a","name":"n"}'),
        ("templates", b'{"uriTemplate":"a:","name":"n"}', b'{"uriTemplate":"fs.a","name":"n"}'),
    ],
)
def test_only_what_names_a_listing_changes(kind: ListKind, raw: bytes, expected: bytes) -> None:
    (listing,) = CHECKS[kind]("fs", [raw])[0].values()

    assert encode_listing(listing, "fs.a", kind=kind) == expected


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("kind", METHODS)
@given(
    members=st.dictionaries(
        st.sampled_from(
            ["title", "description", "icons", "_meta", "arguments", "mimeType", "size", "annotations"]
        ),
        JSON | st.fixed_dictionaries({}, optional={"audience": JSON, "priority": JSON, "lastModified": JSON}),
        max_size=4,
    )
)
def test_whatever_listing_passes_the_check_the_official_sdk_takes(
    kind: ListKind, members: dict[str, Any], era: Revision
) -> None:
    raw = msgspec.json.encode({"name": "a", NAMED_BY[kind]: "a:b", **members})
    listings, _ = CHECKS[kind]("fs", [raw])
    listed = [encode_listing(each, each.name, kind=kind) for each in listings.values()]

    page = encode_page(kind, listed, revision=era, next_cursor=None, ttl_ms=60_000, meta=META)

    result = parse_server_result(METHODS[kind], REVISIONS[era], msgspec.json.decode(page))

    assert isinstance(result, ListPromptsResult | ListResourcesResult | ListResourceTemplatesResult)
