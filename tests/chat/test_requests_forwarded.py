"""What is passed on is what came, but for what is ours in it."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from toolgate.chat.client_tools import check_other_tools
from toolgate.chat.requests import build_forwarded, disable_tools, parse_chat_request
from toolgate.errors import InvalidChat
from toolgate.model.json_text import Members, decode_members

MCP = {"type": "mcp", "server_label": "x", "server_url": "https://mcp.example/", "require_approval": "never"}
FUNCTION = {"type": "function", "function": {"name": "mine"}}


def body_of(**members: Any) -> Members:
    return decode_members(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **members}).encode()
    )


def passed_on(body: Members, *, model: str = "m") -> Members:
    return build_forwarded(body, parse_chat_request(body).with_model(model))


def test_a_request_with_nothing_of_the_gateway_is_passed_on_as_it_is() -> None:
    body = body_of(tools=[MCP, FUNCTION], metadata={"a": "b"}, odd={"x": [1.50]}, temperature=0.10)

    assert passed_on(body) == body


def test_only_what_is_of_the_gateway_is_taken_out() -> None:
    body = body_of(metadata={"mcp.enabled": "false", "a": "b"}, toolgate={"mode": "passthrough"}, seed=1)

    assert passed_on(body) == {**body_of(seed=1), "metadata": msgspec.Raw(b'{"a":"b"}')}


def test_metadata_that_was_of_the_gateway_alone_is_not_passed_on() -> None:
    assert passed_on(body_of(metadata={"mcp.enabled": "false"})) == body_of()


def test_the_model_has_the_name_its_server_knows() -> None:
    assert passed_on(body_of(model="up/m")) == body_of(model="m")


def test_messages_that_were_put_together_again_take_the_place_of_those_sent() -> None:
    body = body_of()
    message = msgspec.Raw(b'{"role":"user","content":"other"}')

    members = build_forwarded(body, replace(parse_chat_request(body), messages=(message,)))

    assert members["messages"] == msgspec.Raw(b'[{"role":"user","content":"other"}]')


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "", "id": "tgc_1"},
            },
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        ),
        ({"role": "user", "content": "what is tgc_?"}, {"role": "user", "content": "what is tgc_?"}),
    ],
)
def test_an_id_of_the_gateway_is_not_passed_on(message: dict[str, Any], expected: dict[str, Any]) -> None:
    members = passed_on(body_of(messages=[message, {"role": "user", "content": "hi"}]))

    assert json.loads(bytes(members["messages"]))[0] == expected


@pytest.mark.parametrize(
    ("members", "added"),
    [
        pytest.param({"tools": [MCP], "tool_choice": "required"}, {"tool_choice": "none"}, id="tools"),
        pytest.param({"functions": [{"name": "f"}]}, {"function_call": "none"}, id="functions"),
        pytest.param({"tools": []}, {}, id="no tools: a choice among none is refused by many"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_a_model_that_is_to_answer_has_its_tools_and_may_call_none(
    members: dict[str, Any], added: dict[str, Any]
) -> None:
    assert json.loads(msgspec.json.encode(disable_tools(body_of(**members)))) == json.loads(
        msgspec.json.encode(body_of(**(members | added)))
    )


def test_tools_that_are_no_functions_are_refused_where_the_model_may_not_have_them() -> None:
    """CHT-5"""
    declared = parse_chat_request(body_of(tools=[FUNCTION, MCP])).declared

    check_other_tools(declared.other_kinds, "pass")
    check_other_tools((), "refuse")
    with pytest.raises(InvalidChat, match="'mcp'") as caught:
        check_other_tools(declared.other_kinds, "refuse")
    assert caught.value.data == {"param": "tools"}
