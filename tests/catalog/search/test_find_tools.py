"""The tools that stand for all others: definitions like those of any server, and arguments read strictly."""

import msgspec
import pytest

from toolgate.catalog.find_tools import (
    CALL_TOOL,
    DESCRIBE_TOOL,
    FIND_TOOLS,
    MAX_QUERY_BYTES,
    SEARCH_TOOLS,
    SearchArguments,
    parse_search_arguments,
    parse_target,
)
from toolgate.errors import InvalidArguments
from toolgate.model.json_text import Members


def params(arguments: bytes | None, **members: bytes) -> Members:
    raws = {"name": b'"call_tool"', **members} | ({} if arguments is None else {"arguments": arguments})
    return {name: msgspec.Raw(raw) for name, raw in raws.items()}


def test_what_changes_nothing_says_so_and_what_may_do_anything_says_nothing() -> None:
    hints = {name: msgspec.json.decode(tool.raw).get("annotations") for name, tool in FIND_TOOLS.items()}

    reading = {"readOnlyHint": True, "openWorldHint": False}
    assert hints == {SEARCH_TOOLS: reading, DESCRIBE_TOOL: reading, CALL_TOOL: None}


def test_all_three_cost_about_500_tokens() -> None:
    assert 450 < sum(tool.tokens for tool in FIND_TOOLS.values()) < 550


def test_clients_of_both_eras_take_them_as_they_are() -> None:
    assert all(tool.is_legacy_safe for tool in FIND_TOOLS.values())


@pytest.mark.parametrize(
    ("arguments", "expected", "has_filter"),
    [
        (None, SearchArguments(), False),
        (b"{}", SearchArguments(), False),
        (b'{"query":"x","limit":50}', SearchArguments(query="x", limit=50), False),
        (b'{"query":"x","server":"a"}', SearchArguments(query="x", server="a"), True),
        (b'{"query":"x","read_only":false}', SearchArguments(query="x", read_only=False), True),
    ],
)
def test_a_search_is_read(arguments: bytes | None, expected: SearchArguments, has_filter: bool) -> None:
    search = parse_search_arguments(params(arguments))

    assert (search, search.has_filter) == (expected, has_filter)


@pytest.mark.parametrize(
    "arguments",
    [
        b"[]",
        b'"x"',
        b'{"query":null}',
        b'{"query":"x","limit":0}',
        b'{"query":"x","limit":1e9}',
        b'{"query":"x","more":1}',
        b'{"query":"%b"}' % (b"x" * (MAX_QUERY_BYTES + 1)),
        '{{"query":"{}"}}'.format("搜" * (MAX_QUERY_BYTES // 3 + 1)).encode(),
        b'{"query":"x","tag":"%b"}' % (b"x" * 257),
    ],
)
def test_a_search_that_does_not_fit_is_refused(arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        parse_search_arguments(params(arguments))


def test_a_query_at_the_limit_is_taken() -> None:
    query = "x" * MAX_QUERY_BYTES

    assert parse_search_arguments(params(msgspec.json.encode({"query": query}))).query == query


def test_the_call_of_the_target_keeps_the_other_params() -> None:
    sent = params(b'{ "arguments": {"n" : 1.00}, "name":"git.log" }', _meta=b'{"a":1}', requestState=b'"s"')

    name, own = parse_target(CALL_TOOL, sent)

    assert name == "git.log"
    assert {member: bytes(raw) for member, raw in own.items()} == {
        "name": b'"git.log"',
        "arguments": b'{"n" : 1.00}',
        "_meta": b'{"a":1}',
        "requestState": b'"s"',
    }


def test_a_call_without_arguments_has_none() -> None:
    assert parse_target(CALL_TOOL, params(b'{"name":"a.b"}'))[1].keys() == {"name"}


@pytest.mark.parametrize("arguments", [None, b"{}", b"[]", b'{"name":1}', b'{"name":""}', b'{"name":null}'])
def test_a_call_that_names_no_tool_is_refused(arguments: bytes | None) -> None:
    with pytest.raises(InvalidArguments, match="call_tool"):
        parse_target(CALL_TOOL, params(arguments))


@pytest.mark.parametrize("more", [b'"NAME":"c.d"', b'"Arguments":{}', b'"na\\u0000me":"c.d"'])
def test_a_call_that_names_its_tool_in_two_ways_is_refused(more: bytes) -> None:
    with pytest.raises(InvalidArguments, match="can be read as another member"):
        parse_target(CALL_TOOL, params(b'{"name":"a.b",%b}' % more))
