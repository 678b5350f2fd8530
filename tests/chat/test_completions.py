"""What models are asked: the history stays whole and fit to be sent, whatever was said in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chat.conversations import HI, call, function, offered, plain, reply_of, request_of
from tests.upstream.strict_history import fault_of
from toolgate.chat.completions import Transcript
from toolgate.chat.injection import InjectedTools
from toolgate.chat.model_completion import ModelCompletion
from toolgate.chat.tool_loop import PromptModel

SENT = PromptModel(choice="sent")
AUTO = PromptModel(choice="auto")
LAST = PromptModel(choice="none", is_last=True)


def asked(transcript: Transcript, request: PromptModel = SENT) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(transcript.build_request(request))
    return body


def test_the_first_request_is_the_callers_with_tools_next_to_its_own() -> None:
    request = request_of(tools=[function("mine")], temperature=0, parallel_tool_calls=False, vendor={"x": 1})
    body = asked(Transcript(request, offered("read")))

    assert [tool["function"]["name"] for tool in body.pop("tools")] == ["mine", "mcp__fs__read"]
    assert body == {
        "model": "m",
        "messages": [HI],
        "temperature": 0,
        "parallel_tool_calls": False,
        "vendor": {"x": 1},
    }


def test_messages_and_tools_pass_byte_for_byte() -> None:
    request = request_of(tools=[function("mine")])
    body = Transcript(request, InjectedTools()).build_request(SENT)

    assert json.dumps([HI]).encode() in body
    assert json.dumps(function("mine")).encode() in body


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(
            {"stream": True, "stream_options": {"x": 1, "include_usage": False}},
            {"stream": True, "stream_options": {"x": 1, "include_usage": True}},
            id="a stream tells what was used",
        ),
        pytest.param(
            {"stream": True, "stream_options": None},
            {"stream": True, "stream_options": {"include_usage": True}},
            id="null options",
        ),
        pytest.param({"stream": False}, {}, id="whole"),
    ],
)
def test_streams(sent: dict[str, Any], expected: dict[str, Any]) -> None:
    body = asked(Transcript(request_of(**sent), InjectedTools()))

    assert body == {"model": "m", "messages": [HI], **expected}


NAMED = {"type": "function", "function": {"name": "mcp__fs__read"}}
DOTTED = {"type": "function", "function": {"name": "mcp.fs.read"}}


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("sent", "prompt", "expected"),
    [
        pytest.param(None, SENT, None, id="none sent"),
        pytest.param(None, AUTO, None, id="none sent, later"),
        pytest.param(None, LAST, "none", id="none sent, last"),
        pytest.param("required", SENT, "required", id="required"),
        pytest.param("required", AUTO, "auto", id="required, satisfied"),
        pytest.param("required", LAST, "none", id="required, last"),
        pytest.param(NAMED, SENT, NAMED, id="named"),
        pytest.param(DOTTED, SENT, NAMED, id="named as models may say it"),
        pytest.param(DOTTED, AUTO, "auto", id="named, satisfied"),
        pytest.param(allowed("required", DOTTED), SENT, allowed("required", NAMED), id="allowed"),
        pytest.param(
            allowed("required", DOTTED), AUTO, allowed("auto", NAMED), id="what is not allowed stays so"
        ),
    ],
)
def test_choices(sent: Any, prompt: PromptModel, expected: Any) -> None:
    transcript = Transcript(request_of(tool_choice=sent), offered("read"))

    assert asked(transcript, prompt).get("tool_choice") == expected


@pytest.mark.parametrize(
    ("sent", "prompt", "expected"),
    [
        pytest.param({"tool_choice": "auto"}, SENT, {}, id="auto"),
        pytest.param({"tool_choice": "required"}, AUTO, {}, id="satisfied, though by nothing"),
        pytest.param({"parallel_tool_calls": True, "tools": []}, LAST, {}, id="last"),
        pytest.param({"tools": None}, SENT, {}, id="null tools"),
        pytest.param(
            {"tool_choice": "required"},
            SENT,
            {"tool_choice": "required"},
            id="a demand is the model's to refuse",
        ),
    ],
)
def test_where_there_is_nothing_to_choose_nothing_is_reported_of_choosing(
    sent: dict[str, Any], prompt: PromptModel, expected: dict[str, Any]
) -> None:
    body = asked(Transcript(request_of(**sent), InjectedTools()), prompt)

    assert body == {"model": "m", "messages": [HI], **expected}


@pytest.mark.requirement("002-030")
def test_a_round_is_the_reply_as_it_came_and_one_message_for_each_call() -> None:
    signature = {"google": {"thought_signature": "s=="}}
    calls = [call("a", arguments='{"path": "x"}', extra_content=signature), call("b")]
    completion = reply_of(*calls, reasoning_content="hm", refusal=None)
    transcript = Transcript(request_of(), offered("read"))
    transcript.take(completion)
    for one in completion.calls:
        transcript.add_result(one, f"result of {one.call_id}")

    assert asked(transcript)["messages"] == [
        HI,
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "refusal": None,
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": "a", "content": "result of a"},
        {"role": "tool", "tool_call_id": "b", "content": "result of b"},
    ]


def test_an_answer_without_calls_stays_as_it_came() -> None:
    transcript = Transcript(request_of(), offered("read"))
    transcript.take(reply_of(content="hello", vendor=1))

    assert asked(transcript)["messages"][1:] == [{"role": "assistant", "content": "hello", "vendor": 1}]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param('{"a":1}', '{"a":1}', id="an object"),
        pytest.param(' { "a" : 1 } ', ' { "a" : 1 } ', id="as it was spelled"),
        pytest.param("", "{}", id="nothing"),
        pytest.param('{"path": "no', '{"__invalid__":"{\\"path\\": \\"no"}', id="cut off"),
        pytest.param('{"a":1}{"b":2}', '{"__invalid__":"{\\"a\\":1}{\\"b\\":2}"}', id="two at once"),
        pytest.param("[1]", '{"__invalid__":"[1]"}', id="an array"),
        pytest.param("x" * 5_000, '{"__invalid__":"' + "x" * 200 + '"}', id="not more than a line of it"),
    ],
)
def test_arguments_in_a_history_are_an_object(sent: str, expected: str) -> None:
    """A server that reads its own model's broken arguments answers with a 500."""
    transcript = Transcript(request_of(), offered("read"))
    transcript.take(reply_of(call("a", arguments=sent, vendor=1)))

    assert asked(transcript)["messages"][1]["tool_calls"] == [call("a", arguments=expected, vendor=1)]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param("mcp.fs.read", "mcp__fs__read", id="what it means"),
        pytest.param("no such tool!", "no_such_tool_", id="what no function can be called"),
        pytest.param("x" * 100, "x" * 64, id="what is too long"),
        pytest.param("", "_", id="nothing"),
        pytest.param("my.own", "my.own", id="the caller's own is its server's business"),
    ],
)
def test_names_in_a_history_are_names_of_functions(sent: str, expected: str) -> None:
    transcript = Transcript(request_of(tools=[function("my.own")]), offered("read"))
    transcript.take(reply_of(call("a", name=sent)))

    assert asked(transcript)["messages"][1]["tool_calls"] == [call("a", name=expected)]


def test_a_call_of_a_tool_that_is_no_function_stays_as_it_came() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "run", "input": "not json"}}
    transcript = Transcript(request_of(), offered("read"))
    transcript.take(reply_of(custom))

    assert asked(transcript)["messages"][1]["tool_calls"] == [custom]


CLOSED = "Stopped."
SENT_ = {"role": "assistant", "content": CLOSED}
RUN = {"role": "assistant", "content": None, "tool_calls": [call("a")]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}


@pytest.mark.parametrize(
    ("model_completion", "closing", "expected"),
    [
        pytest.param([], "", [], id="no answer"),
        pytest.param([], CLOSED, [SENT_], id="no answer in time"),
        pytest.param(
            [reply_of(content="yes", x=1)], "", [{**SENT_, "content": "yes", "x": 1}], id="answered"
        ),
        pytest.param([reply_of(content="", x=1)], CLOSED, [{**SENT_, "x": 1}], id="with nothing"),
        pytest.param(
            [reply_of(content="yes", tool_calls=[])], "", [{**SENT_, "content": "yes"}], id="with no calls"
        ),
        pytest.param([reply_of(call("a"))], "", [RUN, RESULT], id="broken off after results"),
        pytest.param([reply_of(call("a"))], CLOSED, [RUN, RESULT, SENT_], id="no time after results"),
        pytest.param(
            [reply_of(call("a")), reply_of(call("b"), x=1)],
            CLOSED,
            [RUN, RESULT, {**SENT_, "x": 1}],
            id="calls that are not run any more",
        ),
        pytest.param(
            [reply_of(call("a")), reply_of(call("b"), content="so far")],
            "",
            [RUN, RESULT, {**SENT_, "content": "so far"}],
            id="such calls next to words",
        ),
    ],
)
def test_a_history_can_be_gone_on_with(
    model_completion: list[ModelCompletion], closing: str, expected: list[Any]
) -> None:
    transcript = Transcript(request_of(), offered("read"))
    for at, completion in enumerate(model_completion):
        transcript.take(completion)
        if at == 0:
            for one in completion.calls:
                transcript.add_result(one, "done")

    assert plain(transcript.build_history(closing)) == [HI, *expected]


TEXTS = st.sampled_from(["mcp__fs__read", "mcp.fs.read", "mine", "", "a b", "é" * 70, "x" * 99]) | st.text(
    max_size=8
)
ARGUMENTS = st.sampled_from(["{}", "", '{"a":1}', '{"a":', "[]", "null", '{"a":1,"a":2}']) | st.text(
    max_size=8
)
CALLS = st.builds(call, st.sampled_from(["a", "b", "c", ""]), TEXTS, ARGUMENTS)
ROUNDS = st.lists(st.lists(CALLS, min_size=1, max_size=4), max_size=4)


@given(ROUNDS, st.sampled_from([SENT, AUTO, LAST]), st.booleans(), st.booleans())
def test_strict_servers_take_every_history(
    rounds: list[Any], prompt: PromptModel, declares: bool, stops: bool
) -> None:
    """Also that of a conversation that a budget stopped in the middle."""
    own = {"tools": [function("mine")]} if declares else {}
    transcript = Transcript(request_of(**own), offered("read", "stat", own=["mine"]))
    for calls in rounds:
        completion = reply_of(*calls)
        transcript.take(completion)
        for one in completion.calls:
            transcript.add_result(one, "done")
        assert fault_of(asked(transcript, prompt)) is None
    body = asked(transcript, prompt)
    if stops:
        transcript.take(reply_of(call("z")))
    received = plain(transcript.build_history("Stopped."))

    assert fault_of(body) is None
    assert fault_of({**body, "messages": received}) is None
    assert received[-1]["content"] == "Stopped."
    assert sum(message["role"] == "tool" for message in body["messages"]) == sum(map(len, rounds))
