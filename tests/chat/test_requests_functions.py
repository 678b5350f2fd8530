"""Requests in the form from before there were tools take part in everything."""

import json
from typing import Any

import pytest

from toolgate.chat.requests import (
    ChatRequest,
    convert_to_function_call,
    convert_to_tools,
    parse_chat_request,
    uses_functions,
)
from toolgate.errors import InvalidChat
from toolgate.model.json_text import Members, decode_members

USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "mine", "parameters": {"type": "object"}, "odd": 1}


def members_of(value: dict[str, Any]) -> Members:
    return decode_members(json.dumps(value).encode())


def request_of(*messages: dict[str, Any], **members: Any) -> ChatRequest:
    return parse_chat_request(members_of({"model": "m", "messages": [USER, *messages], **members}))


def called(**call: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "mine", "arguments": "{}", **call},
    }


def messages_after(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    changed = convert_to_tools(request_of(*messages, functions=[FUNCTION]))
    return [json.loads(bytes(raw)) for raw in changed.messages[1:]]


@pytest.mark.parametrize(
    ("function_call", "tool_choice", "kind"),
    [
        ({}, {}, "absent"),
        ({"function_call": None}, {}, "absent"),
        ({"function_call": "none"}, {"tool_choice": "none"}, "none"),
        ({"function_call": "auto"}, {"tool_choice": "auto"}, "auto"),
        (
            {"function_call": {"name": "mine"}},
            {"tool_choice": {"type": "function", "function": {"name": "mine"}}},
            "named",
        ),
    ],
)
def test_functions_become_tools(function_call: Any, tool_choice: Any, kind: str) -> None:
    request = request_of(functions=[FUNCTION], seed=1, tools=None, **function_call)

    changed = convert_to_tools(request)

    assert uses_functions(request)
    assert not uses_functions(changed)
    assert {name: json.loads(bytes(raw)) for name, raw in changed.members.items()} == {
        "model": "m",
        "seed": 1,
        "tools": [{"type": "function", "function": FUNCTION}],
        **tool_choice,
    }
    assert changed.choice.kind == kind
    assert changed.declared.functions == {"mine"}


@pytest.mark.parametrize("members", [{"tools": [{"type": "mcp"}]}, {"tool_choice": "auto"}])
def test_a_request_in_both_forms_is_refused(members: Any) -> None:
    with pytest.raises(InvalidChat, match="cannot be used together"):
        convert_to_tools(request_of(functions=[FUNCTION], **members))


@pytest.mark.parametrize(("content", "expected"), [("done", "done"), (None, "")])
def test_a_call_and_its_result_become_those_of_a_tool(content: str | None, expected: str) -> None:
    result = {"role": "function", "name": "mine", "content": content}

    assert messages_after(called(), result) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "fn0000001", "type": "function", "function": {"name": "mine", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "fn0000001", "content": expected},
    ]


def test_an_id_that_came_with_a_call_comes_back() -> None:
    call, result = messages_after(
        called(id="tgc_sealed"), {"role": "function", "name": "mine", "content": "done"}
    )

    assert (call["tool_calls"][0]["id"], result["tool_call_id"]) == ("tgc_sealed", "tgc_sealed")
    assert call["tool_calls"][0]["function"] == {"name": "mine", "arguments": "{}"}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([called(), USER], id="a call without a result"),
        pytest.param([{"role": "function", "name": "mine", "content": "x"}], id="a result without a call"),
        pytest.param([called(), {"role": "function", "name": "other", "content": "x"}], id="of another call"),
        pytest.param([{**called(), "function_call": "odd"}, USER], id="what cannot be read"),
    ],
)
def test_what_does_not_belong_together_stays_as_it_is(messages: list[dict[str, Any]]) -> None:
    assert messages_after(*messages) == messages


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(
            {"id": "call_1", "type": "function", "function": {"name": "mine", "arguments": "{}", "odd": 1}},
            {"name": "mine", "arguments": "{}"},
            id="the old form has no ids",
        ),
        pytest.param(
            {"id": "tgc_sealed", "function": {"name": "mine", "arguments": "{}"}},
            {"name": "mine", "arguments": "{}", "id": "tgc_sealed"},
            id="but for one that has to come back",
        ),
        pytest.param({"type": "custom"}, {"name": "", "arguments": ""}, id="a call of what is no function"),
    ],
)
def test_a_call_is_handed_over_in_the_old_form(call: dict[str, Any], expected: dict[str, str]) -> None:
    other = {"id": "call_2", "type": "function", "function": {"name": "second", "arguments": "{}"}}

    message = convert_to_function_call(members_of({"content": "text", "tool_calls": [call, other]}))

    assert {name: json.loads(bytes(raw)) for name, raw in message.items()} == {
        "content": "text",
        "function_call": expected,
    }


def test_a_message_without_calls_is_the_same_in_both_forms() -> None:
    message = members_of({"content": "text"})

    assert convert_to_function_call(message) == message
