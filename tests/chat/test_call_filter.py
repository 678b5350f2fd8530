"""Where nothing remains of an answer, a second one takes its place: one answer to those who read it."""

import json
from typing import Any

import pytest

from toolgate.chat.call_filter import (
    CLOSING,
    MAX_CHOICES,
    EmptyCompletion,
    StreamContinuation,
    StreamFilter,
    filter_completion,
)
from toolgate.chat.client_tools import ClientTools
from toolgate.errors import ModelUnavailable

DECLARED = ClientTools(functions=frozenset({"mine"}))


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def completion(*messages: dict[str, Any], finish: str = "tool_calls", **more: Any) -> bytes:
    choices = [
        {"index": at, "message": {"role": "assistant", **message}, "finish_reason": finish}
        for at, message in enumerate(messages)
    ]
    return json.dumps({"id": "c1", "odd": [1], "choices": choices, **more}).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, *, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c1", "created": 1, "choices": [choice], **more}).encode()


def usage(tokens: int, chunk_id: str = "c1") -> bytes:
    return json.dumps({"id": chunk_id, "choices": [], "usage": {"total_tokens": tokens}}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(completion({"content": "words"}, finish="stop"), id="text"),
        pytest.param(completion({"content": None, "tool_calls": [call("mine")]}), id="declared calls"),
        pytest.param(completion({"content": None, "tool_calls": None}, finish="stop"), id="silence"),
        pytest.param(completion({"function_call": {"name": "mine", "arguments": ""}}), id="a legacy call"),
        pytest.param(b'{ "object": "something else" }', id="what is no completion"),
    ],
)
def test_a_completion_of_which_nothing_is_taken_out_passes_byte_for_byte(body: bytes) -> None:
    assert filter_completion(body, DECLARED) is body


def test_only_the_undeclared_calls_are_taken_out_of_a_completion() -> None:
    body = completion({"content": None, "tool_calls": [call("theirs"), call("mine", extra={"kept": 1})]})

    filtered = filter_completion(body, DECLARED)

    assert isinstance(filtered, bytes)
    assert json.loads(filtered) == json.loads(
        completion({"content": None, "tool_calls": [call("mine", extra={"kept": 1})]})
    )


@pytest.mark.parametrize(("finish", "becomes"), [("tool_calls", "stop"), ("length", "length")])
def test_text_next_to_undeclared_calls_is_the_answer(finish: str, becomes: str) -> None:
    body = completion({"content": "words", "tool_calls": [call("theirs")]}, finish=finish)

    filtered = filter_completion(body, DECLARED)

    assert isinstance(filtered, bytes)
    assert json.loads(filtered) == json.loads(completion({"content": "words"}, finish=becomes))


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"\xff", b'{"choices": 1}', b"[" * 100_000])
def test_what_cannot_be_read_does_not_pass(body: bytes) -> None:
    with pytest.raises(ModelUnavailable):
        filter_completion(body, DECLARED)


def test_a_second_completion_answers_for_the_first() -> None:
    first = filter_completion(
        completion({"content": None, "tool_calls": [call("theirs")]}, usage={"total_tokens": 3}), DECLARED
    )

    assert isinstance(first, EmptyCompletion)
    second = completion(
        {"content": "words", "tool_calls": [call("mine")]}, id="c2", usage={"total_tokens": 4}
    )
    assert json.loads(first.complete(second)) == json.loads(
        completion({"content": "words"}, finish="stop", usage={"total_tokens": 7})
    )


@pytest.mark.parametrize("second", [completion({"tool_calls": [call("mine")]}), completion()])
def test_a_model_that_twice_says_nothing_is_spoken_for(second: bytes) -> None:
    first = filter_completion(completion({"content": None, "tool_calls": [call("theirs")]}), DECLARED)

    assert isinstance(first, EmptyCompletion)
    assert json.loads(first.complete(second)) == json.loads(completion({"content": CLOSING}, finish="stop"))


def test_of_several_choices_only_those_of_which_nothing_remains_are_answered_again() -> None:
    words, bare = (
        {"content": "words"},
        {"content": None, "function_call": {"name": "theirs", "arguments": ""}},
    )
    first = filter_completion(completion(words, bare, finish="stop"), DECLARED)

    assert isinstance(first, EmptyCompletion)
    second = completion({"content": "not this"}, {"content": "this"}, finish="stop")
    assert json.loads(first.complete(second)) == json.loads(
        completion(words, {"content": "this"}, finish="stop")
    )


def bare_stream(*, with_role: bool = True) -> StreamFilter:
    """A stream that asked for an undeclared tool and for nothing else, all of it fed."""
    first = StreamFilter(DECLARED)
    role = {"role": "assistant", "content": None} if with_role else {}
    kept = [
        first.feed(chunk({**role, "tool_calls": [{"index": 0, **call("theirs")}]})),
        first.feed(chunk({}, "tool_calls")),
        first.feed(usage(3)),
    ]
    assert [one and json.loads(one) for one in kept] == [
        json.loads(chunk(role)) if role else None,
        None,
        None,
    ]
    return first


def test_a_second_stream_continues_with_the_first() -> None:
    rest = StreamContinuation(bare_stream())

    sent_text = [
        rest.feed(chunk({"role": "assistant", "content": ""}, id="c2", created=9)),
        rest.feed(chunk({"content": "words"}, id="c2")),
        rest.feed(chunk({"tool_calls": [{"index": 0, **call("mine")}]}, id="c2")),
        rest.feed(chunk({}, "tool_calls", id="c2")),
        rest.feed(usage(4, "c2")),
        rest.end(),
    ]

    assert [one and json.loads(one) for one in sent_text] == [
        json.loads(chunk({"content": ""})),
        json.loads(chunk({"content": "words"})),
        None,
        json.loads(chunk({}, "stop")),
        json.loads(usage(7)),
        None,
    ]


def test_the_role_comes_with_the_second_stream_where_the_first_had_none() -> None:
    sent_text = StreamContinuation(bare_stream(with_role=False)).feed(chunk({"role": "assistant"}))

    assert sent_text is not None
    assert json.loads(sent_text) == json.loads(chunk({"role": "assistant"}))


def test_a_stream_that_twice_says_nothing_is_spoken_for_where_it_ends() -> None:
    rest = StreamContinuation(bare_stream())

    sent_text = rest.feed(chunk({}, "length"))

    assert sent_text is not None
    assert json.loads(sent_text) == json.loads(chunk({"content": CLOSING}, "stop"))
    assert rest.end() is None


def test_a_second_stream_that_never_ends_its_choice_is_ended() -> None:
    rest = StreamContinuation(bare_stream())

    sent_text = rest.end()

    assert sent_text is not None
    assert json.loads(sent_text) == json.loads(chunk({"content": CLOSING}, "stop"))


def test_of_a_second_stream_only_the_choices_pass_that_the_first_lacks() -> None:
    first = StreamFilter(DECLARED)
    first.feed(chunk({"content": "words"}, "stop"))
    first.feed(chunk({"tool_calls": [{"index": 0, **call("theirs")}]}, "tool_calls", index=1))
    rest = StreamContinuation(first)

    assert set(first.empty_choices) == {1}
    assert rest.feed(chunk({"content": "other words"})) is None
    sent_text = rest.feed(chunk({"content": "these"}, index=1))
    assert sent_text is not None
    assert json.loads(sent_text) == json.loads(chunk({"content": "these"}, index=1))


def test_usage_that_comes_before_the_end_is_shown_and_still_added() -> None:
    first = StreamFilter(DECLARED)
    first.feed(chunk({"tool_calls": [{"index": 0, **call("theirs")}]}, usage={"total_tokens": 2}))
    ended = first.feed(chunk({}, "tool_calls", usage={"total_tokens": 3}))
    rest = StreamContinuation(first)

    sent_text = rest.feed(usage(4))

    assert ended is None
    assert sent_text is not None
    assert json.loads(sent_text)["usage"] == {"total_tokens": 7}


def test_choices_without_end_are_not_remembered_without_end() -> None:
    kept = StreamFilter(DECLARED)
    for index in range(MAX_CHOICES):
        kept.feed(chunk({"content": "x"}, index=index))

    with pytest.raises(ModelUnavailable, match="more than 128 choices"):
        kept.feed(chunk({"content": "x"}, index=MAX_CHOICES))


def test_an_empty_reason_to_end_is_invalid() -> None:
    kept = StreamFilter(DECLARED)
    stream = [
        chunk({"tool_calls": [{"index": 0, **call("theirs")}]}, ""),
        chunk({"content": "words"}, ""),
        chunk({}, "stop"),
        usage(3),
    ]

    assert [kept.feed(one) for one in stream] == [None, *stream[1:]]


def test_a_stream_that_reported_of_an_error_does_not_continue() -> None:
    first = bare_stream()
    error = b'{"error": {"message": "broken"}}'

    assert first.feed(error) is error
    assert first.empty_choices == {}
