"""Chat requests: read as OpenAI's API reads them, and what in them is ours is taken out."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.client_tools import ClientTools, parse_choice
from toolgate.chat.config import ChatOptions
from toolgate.chat.requests import check_choice, parse_chat_request, parse_gateway_options
from toolgate.errors import InvalidChat
from toolgate.model.json_text import Members

HI = [{"role": "user", "content": "hi"}]
FUNCTION = {"type": "function", "function": {"name": "mine", "parameters": {}}}


def members(body: dict[str, Any]) -> Members:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in body.items()}


def body(**more: Any) -> Members:
    return members({"model": "m", "messages": HI, **more})


def plain(raws: Members) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in raws.items()}


def test_a_request_is_taken_apart_and_what_is_unknown_stays() -> None:
    request = parse_chat_request(
        body(
            stream=True,
            stream_options={"include_usage": True, "vendor": 1},
            tools=[FUNCTION, {"type": "web_search"}],
            functions=[{"name": "old"}],
            tool_choice="required",
            temperature=0.5,
            vendor={"x": [1]},
            metadata={"theirs": "1", "mcp.enabled": "true"},
            toolgate={"mcp": {"server_ids": ["fs"]}, "explain": True},
        )
    )

    assert request.model == "m"
    assert [json.loads(bytes(one)) for one in request.messages] == HI
    assert (request.is_stream, request.wants_usage, request.declared.other_kinds) == (
        True,
        True,
        ("web_search",),
    )
    assert request.declared.functions == {"mine", "old"}
    assert request.choice == parse_choice(b'"required"')
    assert request.params == {"mcp.enabled": True, "mcp.server_ids": ["fs"]}
    assert request.options == ChatOptions(explain=True)
    assert plain(request.members) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True, "vendor": 1},
        "tools": [FUNCTION, {"type": "web_search"}],
        "functions": [{"name": "old"}],
        "tool_choice": "required",
        "temperature": 0.5,
        "vendor": {"x": [1]},
        "metadata": {"theirs": "1"},
    }


def test_what_a_request_declares() -> None:
    tools = [
        FUNCTION,
        {"type": "custom", "custom": {"name": "grammar"}},
        {"type": "custom", "custom": {"name": 7}},
        {"type": "custom"},
        {
            "type": "mcp",
            "server_url": "https://mcp.example",
            "name": "not_this",
            "custom": {"name": "nor_this"},
        },
    ]

    assert parse_chat_request(body(tools=tools, functions=[{"name": "old"}])).declared == ClientTools(
        functions=frozenset({"mine", "old"}),
        customs=frozenset({"grammar"}),
        other_kinds=("custom", "custom", "custom", "mcp"),
    )


def test_nulls_say_nothing() -> None:
    names = ("stream", "stream_options", "tools", "functions", "tool_choice", "metadata", "toolgate")
    request = parse_chat_request(body(**dict.fromkeys(names)))

    assert (request.is_stream, request.wants_usage, request.declared) == (False, False, ClientTools())
    assert (request.choice.kind, request.params, request.options) == ("absent", {}, ChatOptions())


def test_a_request_can_ask_for_usage_with_a_null() -> None:
    assert not parse_chat_request(body(stream=True, stream_options={"include_usage": None})).wants_usage


def test_a_request_is_sent_on_under_the_models_own_name() -> None:
    request = parse_chat_request(body(seed=1)).with_model("gpt")

    assert request.model == "gpt"
    assert plain(request.members) == {"model": "gpt", "seed": 1}


@pytest.mark.parametrize(
    ("more", "param", "sent_text"),
    [
        pytest.param({"model": None}, "model", "you must provide a model parameter", id="no model"),
        pytest.param({"model": ""}, "model", "you must provide a model parameter", id="an empty model"),
        pytest.param(
            {"model": 3},
            "model",
            "Invalid type for 'model': expected a string, but got a number instead.",
            id="a model that is no text",
        ),
        pytest.param(
            {"messages": None}, "messages", "Missing required parameter: 'messages'.", id="no messages"
        ),
        pytest.param(
            {"messages": [{"role": "user"}]},
            "messages[0].content",
            "Missing required parameter: 'messages[0].content'.",
            id="a message without content",
        ),
        pytest.param(
            {"stream": "yes"},
            "stream",
            "Invalid type for 'stream': expected a boolean, but got a string instead.",
            id="a stream that is no flag",
        ),
        pytest.param(
            {"stream_options": {"include_usage": True}},
            "stream_options",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            id="stream options without a stream",
        ),
        pytest.param(
            {"stream": True, "stream_options": []},
            "stream_options",
            "Invalid type for 'stream_options': expected an object, but got an array instead.",
            id="stream options that are no object",
        ),
        pytest.param(
            {"tools": {}},
            "tools",
            "Invalid type for 'tools': expected an array of objects, but got an object instead.",
            id="tools that are no array",
        ),
        pytest.param(
            {"tools": [{"function": {"name": "f"}}]},
            "tools[0].type",
            "Missing required parameter: 'tools[0].type'.",
            id="a tool without type",
        ),
        pytest.param(
            {"tools": [{"type": "function"}]},
            "tools[0].function",
            "Missing required parameter: 'tools[0].function'.",
            id="a function without function",
        ),
        pytest.param(
            {"tools": [FUNCTION, {"type": "function", "function": {"name": "no name"}}]},
            "tools[1].function.name",
            "Invalid 'tools[1].function.name': string does not match pattern. Expected a string "
            "that matches the "
            "pattern '^[A-Za-z0-9_.:-]+$'.",
            id="a bad name",
        ),
        pytest.param(
            {"functions": [{"name": "x" * 129}]},
            "functions[0].name",
            "Invalid 'functions[0].name': string too long. Expected a string with maximum length "
            "128, but got a "
            "string with length 129 instead.",
            id="a long name",
        ),
        pytest.param(
            {"tools": [FUNCTION, FUNCTION]},
            "tools",
            "Tool names must be unique: 'mine' is declared twice.",
            id="a name twice",
        ),
        pytest.param({"tool_choice": 3}, "tool_choice", "invalid `tool_choice`", id="a bad choice"),
    ],
)
def test_a_fault_is_named_as_openai_names_it(more: dict[str, Any], param: str, sent_text: str) -> None:
    with pytest.raises(InvalidChat) as raised:
        parse_chat_request(body(**more))

    assert (str(raised.value), raised.value.data) == (sent_text, {"param": param})


# What is ours

BUDGETS = {"max_iterations": 2}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            {
                "toolgate": {
                    "mcp": {"enabled": True, "server_ids": ["fs"]},
                    "mode": "passthrough",
                    "budgets": {"max_iterations": 2},
                }
            },
            id="in an object",
        ),
        pytest.param(
            {
                "toolgate": {
                    "mcp.enabled": True,
                    "mcp.server_ids": ["fs"],
                    "mode": "passthrough",
                    "budgets": {"max_iterations": 2},
                }
            },
            id="dotted in the object",
        ),
        pytest.param(
            {
                "metadata": {
                    "mcp.enabled": True,
                    "mcp.server_ids": ["fs"],
                    "toolgate.mode": "passthrough",
                    "toolgate.budgets": {"max_iterations": 2},
                }
            },
            id="in metadata",
        ),
        pytest.param(
            {
                "metadata": {
                    "mcp.enabled": "true",
                    "mcp.server_ids": '["fs"]',
                    "toolgate.mode": '"passthrough"',
                    "toolgate.budgets": '{"max_iterations": 2}',
                }
            },
            id="in metadata, as texts",
        ),
        pytest.param(
            {
                "mcp.enabled": True,
                "mcp.server_ids": ["fs"],
                "toolgate.mode": "passthrough",
                "toolgate.budgets": {"max_iterations": 2},
            },
            id="in the body itself",
        ),
        pytest.param(
            {
                "metadata": {"mcp.enabled": "true", "toolgate.mode": "passthrough"},
                "toolgate": {
                    "mcp": {"enabled": True, "server_ids": ["fs"]},
                    "budgets": {"max_iterations": 2},
                },
            },
            id="twice, the same",
        ),
    ],
)
def test_the_same_can_be_sent_in_several_places(more: dict[str, Any]) -> None:
    cleaned, params, options = parse_gateway_options(members({"model": "m", **more}))

    assert plain(cleaned) == {"model": "m"}
    assert params == {"mcp.enabled": True, "mcp.server_ids": ["fs"]}
    assert options == ChatOptions(mode="passthrough", budgets=BUDGETS)


@pytest.mark.parametrize(
    ("more", "param", "sent_text"),
    [
        pytest.param(
            {"toolgate": {"mcp": {"enabled": True}}, "metadata": {"mcp.enabled": "false"}},
            "metadata.mcp.enabled",
            "'metadata.mcp.enabled' and 'toolgate.mcp.enabled' contradict each other.",
            id="two things at once",
        ),
        pytest.param(
            {"toolgate": {"mcp.enabled": True}, "mcp.enabled": 1},
            "toolgate.mcp.enabled",
            "'toolgate.mcp.enabled' and 'mcp.enabled' contradict each other.",
            id="one is not true",
        ),
        pytest.param(
            {"toolgate": {"modus": "x"}},
            "toolgate.modus",
            "Unknown parameter: 'toolgate.modus'.",
            id="unknown",
        ),
        pytest.param(
            {"toolgate": {"mcp": {"tools": []}}},
            "toolgate.mcp.tools",
            "Unknown parameter: 'toolgate.mcp.tools'.",
            id="unknown of mcp",
        ),
        pytest.param(
            {"metadata": {"toolgate.trace": "1"}},
            "metadata.toolgate.trace",
            "Unknown parameter: 'metadata.toolgate.trace'.",
            id="unknown in metadata",
        ),
        pytest.param(
            {"toolgate": "on"},
            "toolgate",
            "Invalid type for 'toolgate': expected an object, but got a string instead.",
            id="no object",
        ),
        pytest.param(
            {"toolgate": {"mcp": True}},
            "toolgate.mcp",
            "Invalid type for 'toolgate.mcp': expected an object, but got a boolean instead.",
            id="mcp is no object",
        ),
        pytest.param(
            {"metadata": []},
            "metadata",
            "Invalid type for 'metadata': expected an object, but got an array instead.",
            id="metadata is no object",
        ),
        pytest.param(
            {"toolgate": {"mode": "observe"}},
            "toolgate.mode",
            "Invalid value: 'observe'. Supported values are: 'inject' and 'passthrough'.",
            id="a mode that is invalid",
        ),
        pytest.param(
            {"metadata": {"toolgate.explain": "maybe"}},
            "metadata.toolgate.explain",
            "Invalid type for 'metadata.toolgate.explain': expected a boolean.",
            id="a flag that is invalid",
        ),
    ],
)
def test_what_is_of_the_gateway_is_read_strictly(more: dict[str, Any], param: str, sent_text: str) -> None:
    with pytest.raises(InvalidChat) as raised:
        parse_gateway_options(members(more))

    assert (str(raised.value), raised.value.data) == (sent_text, {"param": param})


def test_budgets_are_read_strictly() -> None:
    with pytest.raises(InvalidChat, match=r"Invalid value for 'toolgate\.budgets'") as raised:
        parse_gateway_options(members({"toolgate": {"budgets": {"max_rounds": 1}}}))

    assert "`max_iterations`" in raised.value.hint


def test_an_unknown_field_of_the_gateway_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidChat) as raised:
        parse_gateway_options(members({"metadata": {"mcp.servers": "x"}}))

    assert "`mcp.server_ids`" in raised.value.hint
    assert "`toolgate.explain`" in raised.value.hint


def test_what_a_task_says_is_left_for_the_policy_to_refuse() -> None:
    _, params, _ = parse_gateway_options(members({"metadata": {"mcp.task_tool_allowlist": "[]"}}))

    assert params == {"mcp.task_tool_allowlist": []}


def test_a_null_of_the_gateway_says_nothing() -> None:
    more = {"toolgate": {"mcp": None, "mode": None, "explain": None}, "metadata": {"mcp.enabled": None}}

    assert parse_gateway_options(members(more)) == ({}, {}, ChatOptions())


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidChat, match="it is not JSON"):
        parse_gateway_options({"mcp.server_ids": msgspec.Raw(b'["\xff"]')})


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(
            b'{"a": "\\u00e4",  "mcp.enabled":"true"}', b'{"a":"\\u00e4"}', id="next to what is ours"
        ),
        pytest.param(b'{ "a" : "b" }', b'{ "a" : "b" }', id="alone"),
    ],
)
def test_metadata_that_is_not_of_the_gateway_stays_as_it_came(sent: bytes, expected: bytes) -> None:
    cleaned, _, _ = parse_gateway_options({"metadata": msgspec.Raw(sent)})

    assert bytes(cleaned["metadata"]) == expected


OURS = st.dictionaries(
    st.sampled_from(
        ["mcp", "mcp.enabled", "mcp.x", "enabled", "mode", "toolgate.mode", "budgets", "explain", "a"]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["true", "[", "inject", "{}"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["enabled", "x"]), inner),
        max_leaves=6,
    ),
)


@given(OURS, OURS, OURS)
def test_nothing_of_the_gateway_is_left_over(
    body: dict[str, Any], toolgate: dict[str, Any], metadata: dict[str, Any]
) -> None:
    try:
        cleaned, params, _ = parse_gateway_options(
            members({**body, "toolgate": toolgate, "metadata": metadata})
        )
    except InvalidChat:
        return
    left = [*cleaned, *plain(cleaned).get("metadata", {})]

    assert not [name for name in left if name.startswith(("mcp.", "toolgate"))]
    assert all(name.startswith("mcp.") for name in params)


# Choices


@pytest.mark.parametrize(
    ("choice", "declared"),
    [
        pytest.param(None, (), id="none sent"),
        pytest.param("auto", (), id="auto without tools"),
        pytest.param("none", (), id="none without tools"),
        pytest.param("required", ("f",), id="required of some"),
        pytest.param({"type": "function", "function": {"name": "f"}}, ("f", "g"), id="named"),
    ],
)
def test_choices_that_can_be_met(choice: Any, declared: tuple[str, ...]) -> None:
    check_choice(parse_choice(None if choice is None else json.dumps(choice).encode()), declared)


@pytest.mark.parametrize(
    ("choice", "declared", "sent_text"),
    [
        pytest.param(
            "required",
            (),
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            id="required of nothing",
        ),
        pytest.param(
            {"type": "function", "function": {"name": "f"}},
            ("g",),
            "Invalid value for 'tool_choice': 'f' not found in 'tools' parameter.",
            id="not declared",
        ),
        pytest.param(
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            (),
            "Invalid value for 'tool_choice': 'f' not found in 'tools' parameter.",
            id="allowed but not declared",
        ),
    ],
)
def test_choices_that_cannot_be_met(choice: Any, declared: tuple[str, ...], sent_text: str) -> None:
    with pytest.raises(InvalidChat) as raised:
        check_choice(parse_choice(json.dumps(choice).encode()), declared)

    assert (str(raised.value), raised.value.data) == (sent_text, {"param": "tool_choice"})


@pytest.mark.parametrize(
    "more",
    [
        {"MODEL": "other"},
        {"Messages": []},
        {"Toolgate": {"mcp": {"server_ids": ["fs"]}}},
        {"MCP.server_ids": ["fs"]},
        {"metadata": {"Mcp.server_ids": "[]"}},
        {"vendor": 1, "Vendor": 2},
    ],
)
def test_a_field_that_a_models_server_may_take_for_another_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidChat, match="can be read as another member"):
        parse_gateway_options(body(**more))
