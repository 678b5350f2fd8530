"""Messages of a chat: what follows what, and what OpenAI's API says where it does not."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.parsing import MAX_MESSAGES, check_messages, parse_messages
from toolgate.errors import InvalidChat

USER = {"role": "user", "content": "hi"}


def raws(*messages: Any) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(message).encode()) for message in messages]


def calling(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(
            [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER], id="texts"
        ),
        pytest.param([{"role": "user", "content": [{"type": "text", "text": "x"}]}], id="parts"),
        pytest.param([{"role": "user", "content": [{"type": "hologram", "of": 1}]}], id="an unknown part"),
        pytest.param([{**USER, "name": "ada", "vendor": {"x": 1}}], id="unknown members"),
        pytest.param([USER, calling("a", "b"), result("b"), result("a"), USER], id="results in any order"),
        pytest.param([calling("a"), result("a", [{"type": "text", "text": "x"}])], id="a result in parts"),
        pytest.param([calling("a"), result("a"), calling("a"), result("a")], id="an id in two turns"),
        pytest.param([calling("a", "a"), result("a"), result("a")], id="an id twice, answered twice"),
        pytest.param([USER, {"role": "assistant", "content": "x", "tool_calls": []}], id="no calls"),
        pytest.param([USER, {"role": "assistant", "content": "x", "tool_calls": None}], id="null calls"),
        pytest.param([USER, {"role": "assistant", "refusal": "no"}], id="a refusal"),
        pytest.param(
            [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}],
            id="the old form's call",
        ),
        pytest.param([{"role": "function", "name": "f", "content": None}], id="the old form's result"),
        pytest.param(
            [{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": 1}]}, result("a")],
            id="a call that is no function's",
        ),
        pytest.param(
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}],
                },
                result("a"),
            ],
            id="a call without type, with broken arguments",
        ),
    ],
)
def test_messages_that_add_up_pass(messages: list[Any]) -> None:
    check_messages(raws(*messages))


@pytest.mark.parametrize(
    ("messages", "param", "sent_text"),
    [
        pytest.param(
            [USER, result("a")],
            "messages.[1].role",
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            id="a result of nothing",
        ),
        pytest.param(
            [calling("a"), result("a"), USER, result("a")],
            "messages.[3].role",
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            id="a result too late",
        ),
        pytest.param(
            [USER, calling("a", "b"), result("a"), USER],
            "messages.[1].role",
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: b",
            id="a call without result",
        ),
        pytest.param(
            [USER, calling("a", "b")],
            "messages.[1].role",
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: a, b",
            id="calls at the end",
        ),
        pytest.param(
            [calling("a"), result("b")],
            "messages.[1].tool_call_id",
            "Invalid parameter: 'tool_call_id' of 'b' not found in 'tool_calls' of previous message.",
            id="an unknown id",
        ),
        pytest.param(
            [calling("a"), result("a"), result("a")],
            "messages.[2].tool_call_id",
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[1] and messages[2].",
            id="a result twice",
        ),
        pytest.param(
            [{"role": "wizard", "content": "x"}],
            "messages[0].role",
            "Invalid value: 'wizard'. Supported values are: 'system', 'assistant', 'user', 'function', "
            "'tool', and 'developer'.",
            id="an unknown role",
        ),
        pytest.param(
            [{"content": "x"}],
            "messages[0].role",
            "Missing required parameter: 'messages[0].role'.",
            id="no role",
        ),
        pytest.param(
            [{"role": 3, "content": "x"}],
            "messages[0].role",
            "Invalid type for 'messages[0].role': expected a string, but got a number instead.",
            id="a role that is no text",
        ),
        pytest.param(
            ["hi"],
            "messages[0]",
            "Invalid type for 'messages[0]': expected an object, but got a string instead.",
            id="no object",
        ),
        pytest.param(
            [{"role": "user"}],
            "messages[0].content",
            "Missing required parameter: 'messages[0].content'.",
            id="no content",
        ),
        pytest.param(
            [{"role": "user", "content": None}],
            "messages[0].content",
            "Invalid value for 'content': expected a string, got null.",
            id="null content",
        ),
        pytest.param(
            [{"role": "assistant", "content": None, "tool_calls": None}],
            "messages[0].content",
            "Invalid value for 'content': expected a string, got null.",
            id="an assistant that says nothing",
        ),
        pytest.param(
            [{"role": "user", "content": {"text": "x"}}],
            "messages[0].content",
            "Invalid type for 'messages[0].content': expected one of a string or array of objects, "
            "but got an "
            "object instead.",
            id="content of another kind",
        ),
        pytest.param(
            [{"role": "user", "content": ["x"]}],
            "messages[0].content[0]",
            "Invalid type for 'messages[0].content[0]': expected an object, but got a string instead.",
            id="a part of another kind",
        ),
        pytest.param(
            [{"role": "user", "content": [{"text": "x"}]}],
            "messages[0].content[0].type",
            "Missing required parameter: 'messages[0].content[0].type'.",
            id="a part without type",
        ),
        pytest.param(
            [calling("a"), result("a", [{"type": "image_url", "image_url": {"url": "x"}}])],
            "messages[1].content[0].type",
            "Invalid value: 'image_url'. Supported values are: 'text'.",
            id="an image as a result",
        ),
        pytest.param(
            [calling("a"), result("a", [{"type": "text"}])],
            "messages[1].content[0].text",
            "Missing required parameter: 'messages[1].content[0].text'.",
            id="a text part without text",
        ),
        pytest.param(
            [calling("a"), result("a", None)],
            "messages[1].content",
            "Invalid type for 'messages[1].content': expected one of a string or array of objects, "
            "but got null "
            "instead.",
            id="a null result",
        ),
        pytest.param(
            [calling("a"), {"role": "tool", "tool_call_id": "a"}],
            "messages[1].content",
            "Missing required parameter: 'messages[1].content'.",
            id="a result without content",
        ),
        pytest.param(
            [calling("a"), {"role": "tool", "content": "x"}],
            "messages[1].tool_call_id",
            "Missing required parameter: 'messages[1].tool_call_id'.",
            id="a result without id",
        ),
        pytest.param(
            [{"role": "function", "content": "x"}],
            "messages[0].name",
            "Missing required parameter: 'messages[0].name'.",
            id="the old form's result without name",
        ),
        pytest.param(
            [{"role": "assistant", "tool_calls": {"id": "a"}}],
            "messages[0].tool_calls",
            "Invalid type for 'messages[0].tool_calls': expected an array of objects, but got an "
            "object instead.",
            id="calls that are no array",
        ),
        pytest.param(
            [{"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]}],
            "messages[0].tool_calls[0].id",
            "Missing required parameter: 'messages[0].tool_calls[0].id'.",
            id="a call without id",
        ),
        pytest.param(
            [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}],
            "messages[0].tool_calls[0].function",
            "Missing required parameter: 'messages[0].tool_calls[0].function'.",
            id="a call without function",
        ),
        pytest.param(
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}],
            "messages[0].tool_calls[0].function.arguments",
            "Invalid type for 'messages[0].tool_calls[0].function.arguments': expected a string, but got an "
            "object instead.",
            id="arguments as an object",
        ),
    ],
)
def test_a_fault_is_named_as_openai_names_it(messages: list[Any], param: str, sent_text: str) -> None:
    with pytest.raises(InvalidChat) as raised:
        check_messages(raws(*messages))

    assert (str(raised.value), raised.value.data) == (sent_text, {"param": param})


@pytest.mark.parametrize(
    ("raw", "sent_text"),
    [
        pytest.param(None, "Missing required parameter: 'messages'.", id="missing"),
        pytest.param(b"null", "Missing required parameter: 'messages'.", id="null"),
        pytest.param(
            b'"hi"',
            "Invalid type for 'messages': expected an array of objects, but got a string instead.",
            id="a text",
        ),
        pytest.param(
            b"[]",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an "
            "empty array "
            "instead.",
            id="empty",
        ),
        pytest.param(
            b"[%s]" % b",".join([b"{}"] * (MAX_MESSAGES + 1)),
            "Invalid 'messages': array too long. Expected an array with maximum length 10000, but "
            "got an array "
            "with length 10001 instead.",
            id="too many",
        ),
    ],
)
def test_messages_that_are_none(raw: bytes | None, sent_text: str) -> None:
    with pytest.raises(InvalidChat) as raised:
        parse_messages(None if raw is None else msgspec.Raw(raw))

    assert (str(raised.value), raised.value.data) == (sent_text, {"param": "messages"})


def test_messages_stay_the_bytes_they_came_as() -> None:
    sent = b'[ {"role": "user",  "content":"\\u00e4", "x":1.0} ,{"role":"user","content":"b"} ]'

    assert [bytes(one) for one in parse_messages(msgspec.Raw(sent))] == [
        b'{"role": "user",  "content":"\\u00e4", "x":1.0}',
        b'{"role":"user","content":"b"}',
    ]


def test_what_is_reported_back_is_short() -> None:
    ids = [f"call_{number}" + "x" * 1_000 for number in range(500)]

    with pytest.raises(InvalidChat) as raised:
        check_messages(raws(calling(*ids)))

    assert len(str(raised.value)) < 2_500


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["tool", "assistant", "user", "a", "function"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "tool_call_id", "id", "type", "function", "name"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.lists(JUNK, max_size=4))
def test_whatever_is_sent_passes_or_is_refused(messages: list[Any]) -> None:
    try:
        check_messages(raws(*messages))
    except InvalidChat as exc:
        assert exc.data["param"].startswith("messages")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidChat, match=r"messages\[0\]\.content"):
        check_messages([msgspec.Raw(b'{"role":"user","content":"\xff"}')])
