"""Replies: the message as it came, its calls as every server takes them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.model_completion import MAX_CALLS, ModelCompletion, parse_completion
from toolgate.chat.tool_calls import ToolCall
from toolgate.errors import ModelUnavailable
from toolgate.model.json_text import Members


def plain(members: Members | None) -> Any:
    return None if members is None else {name: json.loads(bytes(raw)) for name, raw in members.items()}


def encode_body(message: dict[str, Any], **rest: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "chatcmpl-1", "choices": [choice | rest]}).encode()


def reply_with(*calls: Any, nth: int = 0, **fields: Any) -> ModelCompletion:
    return parse_completion(encode_body({"content": None, "tool_calls": list(calls), **fields}), nth=nth)


def function(call_id: Any = "c1", **rest: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **rest}


def test_a_text_is_read_with_all_that_came_next_to_it() -> None:
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "m",
            "x_new": [1],
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "hello",
                        "reasoning_content": "hm",
                        "refusal": None,
                    },
                    "finish_reason": "length",
                    "logprobs": None,
                }
            ],
            "usage": {"total_tokens": 3},
        }
    )

    completion = parse_completion(body.encode())

    assert (completion.text, completion.has_text, completion.finish_reason) == ("hello", True, "length")
    assert (completion.calls, completion.entries) == ((), ())
    assert plain(completion.message) == {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "hm",
        "refusal": None,
    }
    assert plain(completion.usage) == {"total_tokens": 3}
    assert plain(completion.head) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "x_new": [1],
    }
    assert plain(completion.choice) == {"logprobs": None}


def test_calls_are_read_whatever_the_finish_reason_says_and_their_other_fields_stay() -> None:
    one = function(extra_content={"google": {"thought_signature": "s=="}}) | {
        "function": {"name": "f", "arguments": '{"a": 1}', "x": 2}
    }

    completion = reply_with(one, reasoning_details=[{"index": 0}])

    assert completion.calls == (ToolCall(call_id="c1", name="f", arguments='{"a": 1}'),)
    assert completion.finish_reason == "stop"
    assert plain(completion.message) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [one],
        "reasoning_details": [{"index": 0}],
    }
    assert json.loads(bytes(completion.entries[0])) == one
    assert plain(completion.without_calls()) == {
        "role": "assistant",
        "content": None,
        "reasoning_details": [{"index": 0}],
    }


@pytest.mark.parametrize(
    ("sent", "name", "arguments"),
    [
        pytest.param({"function": {"name": "f", "arguments": "{}"}}, "f", "{}", id="without a type"),
        pytest.param({"type": None, "function": {"name": "f", "arguments": "{}"}}, "f", "{}", id="null type"),
        pytest.param(
            {"type": "call", "function": {"name": "f", "arguments": "{}"}}, "f", "{}", id="odd type"
        ),
        pytest.param({"function": {"name": "f", "arguments": {"a": [1]}}}, "f", '{"a": [1]}', id="an object"),
        pytest.param({"function": {"name": "f", "arguments": None}}, "f", "", id="null arguments"),
        pytest.param({"function": {"name": "f"}}, "f", "", id="no arguments"),
        pytest.param({"function": {"name": "f", "arguments": '{"a":'}}, "f", '{"a":', id="cut arguments"),
        pytest.param({"function": {"name": 1, "arguments": "{}"}}, "", "{}", id="no name"),
        pytest.param({"function": None}, "", "", id="no function"),
        pytest.param({}, "", "", id="nothing"),
    ],
)
def test_a_call_is_put_into_the_form_that_everyone_takes(
    sent: dict[str, Any], name: str, arguments: str
) -> None:
    completion = reply_with(sent | {"id": "c1"})

    assert completion.calls == (ToolCall(call_id="c1", name=name, arguments=arguments),)
    assert json.loads(bytes(completion.entries[0])) == {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


@pytest.mark.parametrize(
    ("sent", "name", "arguments"),
    [
        pytest.param(
            {"type": "custom", "custom": {"name": "grep", "input": "a b"}}, "grep", "a b", id="custom"
        ),
        pytest.param({"type": "mcp", "name": "t", "server": "s"}, "t", "", id="one no one knows"),
        pytest.param({"type": "x", "x": 1}, "", "", id="nameless"),
    ],
)
def test_a_call_that_is_no_function_stays_as_it_is(sent: dict[str, Any], name: str, arguments: str) -> None:
    completion = reply_with(sent | {"id": "c1"})

    assert completion.calls == (ToolCall(call_id="c1", name=name, arguments=arguments, kind="other"),)
    assert json.loads(bytes(completion.entries[0])) == sent | {"id": "c1"}


@given(st.lists(st.sampled_from([None, "", 7, "a", "b", "c" * 60]), max_size=8), st.integers(0, 9))
def test_each_call_has_an_id_of_its_own(sent: list[Any], nth: int) -> None:
    """CHT-4"""
    ids = [call.call_id for call in reply_with(*(function(one) for one in sent), nth=nth).calls]

    assert len(set(ids)) == len(ids) == len(sent)
    for place, (one, call_id) in enumerate(zip(sent, ids, strict=True)):
        if isinstance(one, str) and one and one not in sent[:place]:
            assert call_id == one
        else:
            assert len(call_id) == 9
            assert call_id.isalnum()
            assert call_id.isascii()


def test_ids_are_made_up_alike_for_the_same_reply_and_differently_for_another() -> None:
    def made_up(nth: int) -> list[str]:
        return [call.call_id for call in reply_with(function(None), function(None), nth=nth).calls]

    assert made_up(1) == made_up(1)
    assert not set(made_up(1)).intersection(made_up(2))


def test_an_id_that_is_made_up_is_invalid_that_was_given() -> None:
    [first] = reply_with(function(None)).calls

    ids = [call.call_id for call in reply_with(function(None), function(first.call_id)).calls]

    assert ids[1] == first.call_id != ids[0]


def test_a_call_of_old_is_a_call() -> None:
    body = encode_body(
        {"content": None, "function_call": {"name": "f", "arguments": "{}"}}, finish_reason=None
    )

    completion = parse_completion(body)

    [call] = completion.calls
    assert (call.name, call.arguments, completion.finish_reason) == ("f", "{}", "tool_calls")
    assert plain(completion.message) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"function": {"name": "f", "arguments": "{}"}, "id": call.call_id, "type": "function"},
        ],
    }


def test_a_call_sent_in_both_forms_is_one_call() -> None:
    completion = reply_with(function(), function_call={"name": "f", "arguments": "{}"})

    assert [call.call_id for call in completion.calls] == ["c1"]
    assert "function_call" not in completion.message


@pytest.mark.parametrize("sent", [None, [], {}, [None, 1, "f", []]])
def test_what_is_no_call_is_invalid(sent: Any) -> None:
    completion = parse_completion(encode_body({"content": "x", "tool_calls": sent, "function_call": None}))

    assert completion.calls == ()


@pytest.mark.parametrize(
    ("message", "text", "has_text"),
    [
        pytest.param({"content": "a"}, "a", True, id="text"),
        pytest.param({"content": ""}, "", False, id="an empty one"),
        pytest.param({"content": None}, None, False, id="null"),
        pytest.param({}, None, False, id="absent"),
        pytest.param(
            {"content": [{"type": "thinking"}, {"text": "a"}, 1, {"text": "b"}]}, "ab", True, id="parts"
        ),
        pytest.param({"content": [{"type": "thinking"}]}, "", False, id="thoughts alone"),
        pytest.param({"content": None, "refusal": "no"}, None, True, id="a refusal"),
        pytest.param({"content": None, "refusal": ""}, None, False, id="no refusal"),
        pytest.param({"content": None, "audio": {"id": "a"}}, None, True, id="spoken words"),
    ],
)
def test_what_can_are_as_an_answer(message: dict[str, Any], text: str | None, has_text: bool) -> None:
    completion = parse_completion(encode_body(message))

    assert (completion.text, completion.has_text) == (text, has_text)


def test_a_message_without_a_role_is_the_assistants() -> None:
    completion = parse_completion(b'{"choices":[{"message":{"content":"a"}}]}')

    assert plain(completion.message) == {"role": "assistant", "content": "a"}
    assert (completion.finish_reason, completion.usage, completion.head, completion.choice) == (
        "stop",
        None,
        {},
        {},
    )


def test_a_text_that_ends_in_half_a_character_is_read_up_to_there() -> None:
    assert parse_completion(rb'{"choices":[{"message":{"content":"a\ud83d"}}]}').text == "a"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":null}',
        b'{"choices":[]}',
        b'{"choices":[1]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":"hello"}]}',
        b'{"choices":[{"message":{"content":"\xff"}}]}',
        b'{"choices":[{"message":{"content":"a"}}],"x":' + b"[" * 100_000,
    ],
)
def test_what_is_no_completion_is_no_reply(body: bytes) -> None:
    with pytest.raises(ModelUnavailable):
        parse_completion(body)


def test_a_reply_with_more_calls_than_a_model_means_is_invalid() -> None:
    """CHT-4"""
    most = reply_with(*[function()] * MAX_CALLS)
    with pytest.raises(ModelUnavailable):
        reply_with(*[function()] * (MAX_CALLS + 1))

    assert len({call.call_id for call in most.calls}) == MAX_CALLS
