"""The `tools` of a Responses request: whose each is, and what it asks for."""

from typing import Any

import msgspec
import pytest

from toolgate.chat.responses.requests import parse_responses_request
from toolgate.chat.responses.tools import MAX_TOOLS, OfferedTool, parse_responses_tools, select_offers
from toolgate.errors import InvalidChat
from toolgate.model.names import ToolRef
from toolgate.model.tools import ToolDefinition, read_effects


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def tool(name: str, server: str = "one", **hints: bool) -> tuple[str, ToolDefinition]:
    ref, effects = ToolRef(server, name), read_effects(hints)
    return f"{server}.{name}", ToolDefinition(ref=ref, raw=b"{}", digest="", tokens=1, effects=effects)


TABLE = {
    "a": tool("a"),
    "b": tool("b", readOnlyHint=True),
    "c": tool("c", server="two", readOnlyHint=True, destructiveHint=True),
}


def offers(**members: Any) -> tuple[OfferedTool, ...]:
    sent = [{"type": "mcp", "server_label": "toolgate", **members}]
    return select_offers(TABLE, parse_responses_tools(raw(sent)).mcp_tools)


@pytest.mark.parametrize(
    ("require_approval", "expected"),
    [
        (None, "abc"),
        ("always", "abc"),
        ("never", ""),
        ({}, "abc"),
        ({"never": {"tool_names": ["a", "two.c"]}}, "b"),
        ({"never": {"read_only": True}}, "ac"),
        ({"always": {"tool_names": ["a"]}}, "a"),
        ({"always": {"tool_names": ["b"]}, "never": {"read_only": True}}, "abc"),
        ({"always": {"tool_names": ["a"]}, "never": {}}, "a"),
    ],
)
def test_calls_wait_for_an_approval_as_the_request_says(require_approval: Any, expected: str) -> None:
    waiting = [one.chat_name for one in offers(require_approval=require_approval) if one.needs_approval]

    assert "".join(waiting) == expected


def test_a_tool_without_a_place_is_of_the_gateway_and_others_stay_as_they_came() -> None:
    namespace = b'{"type" : "namespace","name":"n","tools":[{"type":"function","name":"g"}]}'
    tunnel = b'{"type":"mcp","server_label":"x","tunnel_id":"t"}'
    gateway_tool = b'{"type":"mcp","server_label":"one","server_url":null}'
    sent = b"[" + b",".join([gateway_tool, tunnel, b'{"type":"function","name":"f"}', namespace]) + b"]"
    declared = parse_responses_tools(msgspec.Raw(sent))

    assert [one.label for one in declared.mcp_tools] == ["one"]
    assert (bytes(declared.others[0]), bytes(declared.others[2])) == (tunnel, namespace)
    assert declared.functions == {"f", "g"}
    assert declared.other_kinds == ("mcp", "namespace")
    assert parse_responses_tools(None).other_kinds == ()
    assert parse_responses_tools(msgspec.Raw(b"null")).others == ()


def test_labels_that_are_servers_offer_those_alone() -> None:
    asked = parse_responses_tools(raw([{"type": "mcp", "server_label": "two"}])).mcp_tools

    assert [(one.chat_name, one.name) for one in select_offers(TABLE, asked)] == [("c", "c")]


@pytest.mark.parametrize(
    "sent",
    [
        5,
        [5],
        [{"type": 5}],
        [{"type": "function", "name": 5}],
        [{"type": "mcp"}],
        [{"type": "mcp", "server_label": ""}],
        [{"type": "mcp", "server_label": "one", "require_approval": "sometimes"}],
        [{"type": "mcp", "server_label": "one", "allowed_tools": "all"}],
        [{"type": "mcp", "server_label": "one"}] * 2,
        [{"type": "x"}] * (MAX_TOOLS + 1),
    ],
)
def test_tools_that_cannot_be_read_are_refused(sent: Any) -> None:
    with pytest.raises(InvalidChat):
        parse_responses_tools(raw(sent))


@pytest.mark.parametrize("model", [None, 5])
def test_a_request_names_its_model(model: Any) -> None:
    with pytest.raises(InvalidChat):
        parse_responses_request({"model": raw(model)})


@pytest.mark.parametrize(
    ("sent", "expected"), [({}, None), ({"max_tool_calls": 5}, 5), ({"max_tool_calls": None}, None)]
)
def test_the_number_of_calls_narrows_the_budget(sent: Any, expected: int | None) -> None:
    members = {name: raw(value) for name, value in {"model": "m", **sent}.items()}
    request = parse_responses_request(members)
    narrower = parse_responses_request({**members, "toolgate": raw({"budgets": {"max_total_tool_calls": 2}})})

    assert request.options.budgets.get("max_total_tool_calls") == expected
    assert narrower.options.budgets["max_total_tool_calls"] == 2
