"""What a session may ask for: its parameters, and the entries of `?tools=` and `?servers=`."""

from collections.abc import Mapping

import pytest

from toolgate.errors import InvalidParams, PolicyDenied
from toolgate.policy.layers import (
    MAX_ENTRIES,
    MAX_WILDCARDS,
    SessionRequest,
    parse_servers_selection,
    parse_session_params,
    parse_tools_selection,
)


@pytest.mark.requirement("002-018")
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({}, SessionRequest(), id="nothing"),
        pytest.param({"temperature": 0.5, "mcpx": 1}, SessionRequest(), id="the model's own parameters"),
        pytest.param({"mcp.enabled": True}, SessionRequest(enabled=True), id="on"),
        pytest.param({"mcp.enabled": False}, SessionRequest(enabled=False), id="off"),
        pytest.param(
            {"mcp.server_ids": ["git", "fs", "fs"]}, SessionRequest(servers=("fs", "git")), id="servers"
        ),
        pytest.param({"mcp.server_ids": []}, SessionRequest(servers=()), id="no servers"),
        pytest.param({"mcp.tool_allowlist": ("a*",)}, SessionRequest(allow=("a*",)), id="an allowlist"),
        pytest.param({"mcp.tool_allowlist": []}, SessionRequest(allow=()), id="an empty allowlist"),
        pytest.param({"mcp.tool_denylist": ["a*"]}, SessionRequest(deny=("a*",)), id="a denylist"),
    ],
)
def test_session_parameters_are_read(params: Mapping[str, object], expected: SessionRequest) -> None:
    assert parse_session_params(params) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param(
            {"mcp.enabled": "true"}, "`mcp.enabled` must be `true` or `false`", id="a text for a flag"
        ),
        pytest.param({"mcp.enabled": 1}, "`mcp.enabled` must be `true` or `false`", id="a number for a flag"),
        pytest.param({"mcp.enabled": None}, "`mcp.enabled` must be `true` or `false`", id="null for a flag"),
        pytest.param(
            {"mcp.server_ids": "fs"}, "`mcp.server_ids` must be a list of strings", id="a text for a list"
        ),
        pytest.param(
            {"mcp.server_ids": None}, "`mcp.server_ids` must be a list of strings", id="null for a list"
        ),
        pytest.param(
            {"mcp.server_ids": {}}, "`mcp.server_ids` must be a list of strings", id="an object for a list"
        ),
        pytest.param(
            {"mcp.tool_denylist": ["a", 1]},
            "`mcp.tool_denylist` must be a list of strings",
            id="an element that is no string is not dropped",
        ),
        pytest.param(
            {"mcp.tool_allowlist": [""]}, "`mcp.tool_allowlist`: empty pattern", id="an empty pattern"
        ),
        pytest.param(
            {"mcp.server_ids": ["a.b"]}, "`mcp.server_ids`: invalid server id `a.b`", id="no server id"
        ),
        pytest.param({"mcp.tags": []}, "unknown session parameter `mcp.tags`", id="an unknown key"),
    ],
)
def test_session_parameters_of_the_wrong_shape_are_invalid(
    params: Mapping[str, object], expected: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        parse_session_params(params)

    assert str(caught.value) == expected
    assert caught.value.wire.errno == "EINVAL"


@pytest.mark.parametrize(
    "key", ["mcp.task_tool_allowlist", "mcp.task_tool_denylist", "mcp.task_", "mcp.task_x"]
)
def test_was_6_a_session_may_not_write_what_the_task_says(key: str) -> None:
    with pytest.raises(PolicyDenied) as caught:
        parse_session_params({key: ["*"], "mcp.enabled": "not even a flag"})

    assert caught.value.wire.errno == "EACCES"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param((), (), id="sco-4 empty"),
        pytest.param(("fs.read",), ("fs/read",), id="server and tool"),
        pytest.param(("fs/read",), ("fs/read",), id="server and tool with a slash"),
        pytest.param(("fs.read.all",), ("fs/read.all",), id="cut at the first dot"),
        pytest.param(("*/read.all",), ("*/read.all",), id="a dotted name of any server"),
        pytest.param(("read",), ("read",), id="a name of any server"),
        pytest.param(("b", "a", "b"), ("a", "b"), id="sorted, once each"),
        pytest.param(("fs.*",), ("fs/*",), id="all of a server"),
        pytest.param(("f*.read",), ("f*/read",), id="a pattern for the server"),
        pytest.param(("*" * 40 + ".x",), ("*" * 40 + "/x",), id="a pattern as long as a server id"),
        pytest.param(("*", "**"), ("*", "**"), id="sco-8 stars"),
        pytest.param(
            ("[a-z]*", "{a", "b}", "!x"), ("!x", "[a-z]*", "b}", "{a"), id="sco-8 signs are literal"
        ),
        pytest.param(("READ",), ("READ",), id="sco-5 another case is another name"),
        pytest.param(("a;b",), ("a;b",), id="sco-11 a semicolon separates nothing"),
        pytest.param(("a，b",), ("a，b",), id="sco-11 a wide comma separates nothing"),
        pytest.param(("a%2Cb",), ("a%2Cb",), id="sco-11 nothing is decoded twice"),
    ],
)
def test_the_entries_of_tools_become_patterns(items: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert parse_tools_selection(items) == expected


HIDDEN = "contains a space or an invisible character"


@pytest.mark.requirement("004-24")
@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param("", "`tools`: empty pattern", id="an empty item between commas"),
        pytest.param(".", "`tools`: invalid server id ``", id="a dot alone"),
        pytest.param(".*", "`tools`: invalid server id ``", id="sco-8 no server before the dot"),
        pytest.param("fs.", "`tools`: empty pattern", id="no tool after the dot"),
        pytest.param("/x", "`tools`: invalid server id ``", id="no server before the slash"),
        pytest.param("FS.read", "`tools`: invalid server id `FS`", id="sco-5 a server id in another case"),
        pytest.param("F*.read", "`tools`: `F*` matches no server id", id="a pattern no server id can match"),
        pytest.param(
            "*" * 41 + ".x", f"`tools`: `{'*' * 41}` matches no server id", id="a pattern too long for an id"
        ),
        pytest.param("a.b/c", "`tools`: invalid server id `a.b`", id="a dot before the slash"),
        pytest.param("fs.read ", f"`tools`: the pattern `fs.read ` {HIDDEN}", id="sco-5 a trailing space"),
        pytest.param("read\t", f"`tools`: the pattern `read\\t` {HIDDEN}", id="sco-5 a tab"),
        pytest.param("read\n", f"`tools`: the pattern `read\\n` {HIDDEN}", id="sco-5 a newline"),
        pytest.param(
            "read\u200b", f"`tools`: the pattern `read\\u200b` {HIDDEN}", id="sco-5 a zero-width space"
        ),
        pytest.param("a\x00b", f"`tools`: the pattern `a\\x00b` {HIDDEN}", id="sco-11 a NUL"),
    ],
)
def test_an_entry_that_cannot_name_a_tool_is_invalid(item: str, expected: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        parse_tools_selection(["ok", item])

    assert str(caught.value) == expected


@pytest.mark.requirement("004-24")
def test_the_entries_of_servers_are_server_ids() -> None:
    assert parse_servers_selection(["git", "fs", "git"]) == ("fs", "git")
    with pytest.raises(InvalidParams, match=r"`servers`: invalid server id `f\*`"):
        parse_servers_selection(["f*"])


def test_a_request_is_bounded_in_entries_and_in_wildcards() -> None:
    most = [f"tool_{number}" for number in range(MAX_ENTRIES)]
    wild = [f"tool_{number}*" for number in range(MAX_WILDCARDS)]

    assert parse_tools_selection(most) == tuple(sorted(most))
    assert parse_tools_selection(wild) == tuple(sorted(wild))
    with pytest.raises(InvalidParams, match="`tools` has 1025 entries"):
        parse_tools_selection([*most, "one-more"])
    with pytest.raises(InvalidParams, match="more than 32 entries with wildcards"):
        parse_tools_selection([*wild, "one-more-*"])


def test_equal_requests_have_one_hash_however_they_were_written() -> None:
    one = parse_session_params({"mcp.server_ids": ["a", "b"], "mcp.tool_denylist": ["x"]})
    other = parse_session_params({"mcp.tool_denylist": ["x", "x"], "mcp.server_ids": ["b", "a"]})

    assert one == other
    assert hash(one) == hash(other)
