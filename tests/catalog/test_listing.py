"""Lists and results as clients of both eras take them, with the official SDK's models as the judge."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, ListToolsResult
from mcp_types.methods import parse_server_result

from tests.catalog.definition_samples import INPUT, checked, tool
from toolgate.catalog.definitions import check_list
from toolgate.catalog.listing import adapt_result, encode_definition, encode_page
from toolgate.errors import ServerUnavailable
from toolgate.model.tools import Era, ToolDefinition

META = {"io.modelcontextprotocol/serverInfo": {"name": "toolgate", "version": "1"}}
REVISIONS: dict[Era, str] = {"legacy": "2025-11-25", "modern": "2026-07-28"}


def listed_by_sdk(definitions: list[ToolDefinition], era: Era) -> list[str]:
    """The names the official SDK reads from a page of `definitions`: one fault, and it refuses the page."""
    tools = [encode_definition(each, f"fs.{each.ref.name}", era=era) for each in definitions]
    page = encode_page(tools, era=era, next_cursor=None, ttl_ms=60_000, meta=META)
    result = parse_server_result("tools/list", REVISIONS[era], msgspec.json.decode(page))
    assert isinstance(result, ListToolsResult)
    return [each.name for each in result.tools]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_only_the_name_of_a_definition_changes(era: Era) -> None:
    definition = checked(
        inputSchema=INPUT | {"$defs": {"a": {"$anchor": "x"}}}, **{"x-vendor": [1.5], "_meta": {"ui": {}}}
    )

    assert encode_definition(definition, "fs.read_file", era=era) == (
        b'{"name":"fs.read_file","description":"Reads a file.","inputSchema":{"type":"object","properties":'
        b'{"path":{"type":"string"}},"$defs":{"a":{"$anchor":"x"}}},"x-vendor":[1.5],"_meta":{"ui":{}}}'
    )


def test_of_a_member_sent_twice_the_one_that_was_checked_is_listed() -> None:
    raw = b'{"name":"a","inputSchema":{"$ref":"http://sentinel.test"},"inputSchema":{"type":"object"}}'

    tools, _ = check_list("fs", [raw])

    assert encode_definition(tools["a"], "a", era="modern") == b'{"name":"a","inputSchema":{"type":"object"}}'


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

    assert encode_definition(definition, "read_file", era="modern") == tool(outputSchema=schema)
    assert encode_definition(definition, "read_file", era="legacy") == tool(outputSchema=legacy)


def test_a_legacy_client_gets_boolean_argument_schemas_spelled_out() -> None:
    definition = checked(inputSchema={"type": "object", "properties": {"any": True}})

    assert encode_definition(definition, "read_file", era="legacy") == tool(
        inputSchema={"type": "object", "properties": {"any": {}}}
    )


def test_a_legacy_page_is_tools_and_cursor_only() -> None:
    page = encode_page([b"{}", b"{}"], era="legacy", next_cursor='a"b', ttl_ms=5, meta={})

    assert page == b'{"tools":[{},{}],"nextCursor":"a\\"b"}'


def test_a_modern_page_is_private_and_says_how_long_it_keeps() -> None:
    page = encode_page([], era="modern", next_cursor=None, ttl_ms=5, meta=META)

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
def test_the_official_sdk_takes_a_whole_list_of_awkward_tools(era: Era) -> None:
    tools, quarantined = check_list("fs", AWKWARD)

    assert quarantined == {}
    assert listed_by_sdk(list(tools.values()), era) == [f"fs.{name}" for name in tools]


SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "array", "a", "#/a"])
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "$ref", "$schema", "src", "a"]), inner
        )
    ),
    max_leaves=8,
)
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
def test_whatever_passes_the_check_the_official_sdk_takes(members: dict[str, Any], era: Era) -> None:
    tools, _ = check_list("fs", [tool(**members)])

    assert listed_by_sdk(list(tools.values()), era) == [f"fs.{name}" for name in tools]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_result_of_the_clients_own_era_is_the_very_same_object(era: Era) -> None:
    result = b' {"content" : [], "resultType":"complete"} '

    assert adapt_result(result, upstream=era, client=era) is result


def test_input_required_reaches_a_modern_client_untouched() -> None:
    result = b'{"resultType":"input_required","requestState":"x"}'

    assert adapt_result(result, upstream="modern", client="modern") is result


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(b"{}", b'{"resultType":"complete"}', id="empty"),
        pytest.param(b" { } ", b'{"resultType":"complete"}', id="empty, with spaces"),
        pytest.param(b'{"content":[]}', b'{"resultType":"complete","content":[]}', id="members"),
        pytest.param(
            b' { "a" : 1.50 }\n', b'{"resultType":"complete","a" : 1.50 }', id="members, with spaces"
        ),
        pytest.param(
            b'{"content":[{"resultType":"x"}]}',
            b'{"resultType":"complete","content":[{"resultType":"x"}]}',
            id="the word further in",
        ),
    ],
)
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
def test_a_modern_client_is_told_that_a_result_is_complete(
    result: bytes, expected: bytes, upstream: Era
) -> None:
    assert adapt_result(result, upstream=upstream, client="modern") == expected


def test_a_legacy_result_that_says_so_already_is_the_very_same_object() -> None:
    result = b'{"content":[],"resultType":"complete"}'

    assert adapt_result(result, upstream="legacy", client="modern") is result


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(b"{}", b"{}", id="empty"),
        pytest.param(
            b'{"resultType":"complete","ttlMs":5,"cacheScope":"private","content":[],"vendor":{"a" : 1}}',
            b'{"content":[],"vendor":{"a" : 1}}',
            id="modern members go",
        ),
        pytest.param(
            b'{"content":[],"structuredContent":{"a" : 1}}',
            b'{"content":[],"structuredContent":{"a" : 1}}',
            id="a structured object stays",
        ),
        pytest.param(
            b'{"content":[{"type":"image" }],"structuredContent":[1, 2]}',
            b'{"content":[{"type":"image" },{"type":"text","text":"[1, 2]"}]}',
            id="another value moves to text",
        ),
        pytest.param(
            b'{"structuredContent":"caf\xc3\xa9"}',
            b'{"content":[{"type":"text","text":"\\"caf\xc3\xa9\\""}]}',
            id="also without content",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"[1,2]"}],"structuredContent":[1, 2]}',
            b'{"content":[{"type":"text","text":"[1,2]"}]}',
            id="unless text says it already",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"true"}],"structuredContent":1}',
            b'{"content":[{"type":"text","text":"true"},{"type":"text","text":"1"}]}',
            id="one is not true",
        ),
        pytest.param(
            b'{"content":[{"type":"text","text":"see below"}],"structuredContent":7}',
            b'{"content":[{"type":"text","text":"see below"},{"type":"text","text":"7"}]}',
            id="text that is no JSON",
        ),
        pytest.param(b'{"structuredContent":null,"content":[]}', b'{"content":[]}', id="null is nothing"),
    ],
)
def test_a_legacy_client_gets_what_legacy_has_words_for(result: bytes, expected: bytes) -> None:
    assert adapt_result(result, upstream="modern", client="legacy") == expected


@pytest.mark.parametrize(
    ("upstream", "client", "kind", "expected"),
    [
        pytest.param(
            "modern",
            "legacy",
            b'"input_required"',
            "the tool asks for input that this client cannot give",
            id="input from a legacy client",
        ),
        pytest.param("legacy", "modern", b'"input_required"', "kind", id="input for a legacy server"),
        pytest.param("modern", "modern", b'"task"', "kind", id="an extension, modern client"),
        pytest.param("modern", "legacy", b'"task"', "kind", id="an extension, legacy client"),
        pytest.param("legacy", "modern", b'"task"', "kind", id="an extension from a legacy server"),
        pytest.param("modern", "modern", b"null", "kind", id="null"),
        pytest.param("modern", "modern", b'["complete"]', "kind", id="wrong type"),
    ],
)
def test_ups_13_a_kind_of_result_the_client_cannot_act_on_is_an_error(
    upstream: Era, client: Era, kind: bytes, expected: str
) -> None:
    unknown = "the server answered with a kind of result that this gateway does not carry"

    with pytest.raises(ServerUnavailable) as raised:
        adapt_result(b'{"resultType":%b}' % kind, upstream=upstream, client=client)

    assert str(raised.value) == (unknown if expected == "kind" else expected)


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b'{"\xff":1}', id="not UTF-8"),
        pytest.param(b'{"structuredContent":[],"content":7}', id="content that is no list"),
        pytest.param(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="bottomless"),
    ],
)
def test_a_result_that_cannot_be_read_is_an_error(result: bytes) -> None:
    with pytest.raises(ServerUnavailable, match="a result that cannot be read"):
        adapt_result(result, upstream="modern", client="legacy")


@pytest.mark.parametrize("result", [b"", b"null", b"5", b'"x"', b"[]"])
def test_chd_10_a_legacy_result_that_is_no_object_is_an_error_for_legacy_clients_too(result: bytes) -> None:
    with pytest.raises(ServerUnavailable, match="a result that cannot be read"):
        adapt_result(result, upstream="legacy", client="legacy")


def test_text_too_deep_to_read_is_left_alone() -> None:
    text = "[" * 100_000
    result = msgspec.json.encode({"content": [{"type": "text", "text": text}], "structuredContent": 7})

    adapted = msgspec.json.decode(adapt_result(result, upstream="modern", client="legacy"))

    assert adapted == {"content": [{"type": "text", "text": text}, {"type": "text", "text": "7"}]}


RESULTS = st.dictionaries(
    st.sampled_from(["_meta", "isError", "vendor", "é", '"'])
    | st.text(max_size=5).filter(lambda key: key not in {"resultType", "ttlMs", "cacheScope", "content"}),
    JSON,
) | st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))}
)


@given(
    RESULTS,
    st.sampled_from([msgspec.json.encode, lambda value: msgspec.json.format(msgspec.json.encode(value))]),
)
def test_there_and_back_again_every_member_is_as_it_was(result: dict[str, Any], encode: Any) -> None:
    there = adapt_result(encode(result), upstream="legacy", client="modern")
    back = adapt_result(there, upstream="modern", client="legacy")

    assert msgspec.json.decode(there) == {"resultType": "complete"} | result
    assert msgspec.json.decode(back) == result


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
@given(structured=JSON)
def test_the_official_sdk_takes_every_adapted_result(structured: Any, upstream: Era, client: Era) -> None:
    sent: dict[str, Any] = {"content": [{"type": "text", "text": "x"}], "structuredContent": structured}
    if upstream == "modern":
        sent["resultType"] = "complete"
    elif not isinstance(structured, dict):
        del sent["structuredContent"]  # a legacy server cannot say it

    adapted = adapt_result(msgspec.json.encode(sent), upstream=upstream, client=client)
    parsed = parse_server_result("tools/call", REVISIONS[client], msgspec.json.decode(adapted))

    assert isinstance(parsed, CallToolResult)
