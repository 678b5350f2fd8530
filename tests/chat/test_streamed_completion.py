"""Streamed replies: whole again, however they were cut up, and shown as they come."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.chat.cut_completions import Cut, cut_completions
from toolgate.chat.model_completion import ModelCompletion, parse_completion
from toolgate.chat.streamed_completion import MAX_COMPLETION_BYTES, CompletionAssembler, CompletionDelta
from toolgate.chat.tool_calls import ToolCall
from toolgate.errors import ModelRefused, ModelUnavailable
from toolgate.model.json_text import Members


def plain(members: Members | None) -> Any:
    return None if members is None else {name: json.loads(bytes(raw)) for name, raw in members.items()}


def received(completion: ModelCompletion) -> Any:
    calls = [(call.call_id, call.name, call.arguments, call.kind) for call in completion.calls]
    members = [
        plain(part) for part in (completion.message, completion.choice, completion.head, completion.usage)
    ]
    return calls, members, completion.text, completion.finish_reason


def chunk(reason: str | None = None, **delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode()


def piece(index: int | None = 0, call_id: str | None = None, **function: Any) -> bytes:
    entry: dict[str, Any] = {"index": index, "id": call_id, "function": function}
    return chunk(tool_calls=[{name: value for name, value in entry.items() if value is not None}])


def assembled(*chunks: bytes, nth: int = 0) -> ModelCompletion:
    assembly = CompletionAssembler(nth=nth)
    for data in (*chunks, b"[DONE]"):
        assembly.feed(data)
    return assembly.finish()


def calls_of(*chunks: bytes) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in assembled(*chunks).calls]


@given(cut_completions())
def test_a_reply_is_the_same_whole_and_streamed(cut: Cut) -> None:
    """CHT-6"""
    assert received(assembled(*cut.chunks)) == received(parse_completion(cut.whole))


@given(cut_completions())
def test_what_is_shown_is_the_text_and_never_a_call(cut: Cut) -> None:
    assembly = CompletionAssembler()
    shown = [delta for delta in map(assembly.feed, cut.chunks) if delta is not None]

    texts = [plain(delta.fields).get("content", "") for delta in shown]
    assert "".join(texts) == (cut.content or "")
    names = [set(delta.fields) for delta in shown]
    assert all(names)
    assert {"tool_calls", "function_call", "role"}.isdisjoint(name for one in names for name in one)


def test_a_delta_is_shown_with_what_stood_next_to_it() -> None:
    body = {
        "id": "c",
        "x": 1,
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "a", "refusal": None, "reasoning": ""},
                "logprobs": {"content": [{"token": "a"}]},
                "finish_reason": None,
            }
        ],
    }

    delta = CompletionAssembler().feed(json.dumps(body).encode())

    assert delta is not None
    assert [plain(part) for part in (delta.fields, delta.choice, delta.head)] == [
        {"content": "a"},
        {"logprobs": {"content": [{"token": "a"}]}},
        {"id": "c", "x": 1},
    ]
    assert isinstance(delta, CompletionDelta)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [piece(0, "a", name="f", arguments="{}"), piece(0, "b", name="g", arguments='{"b":1}')],
            [("f", "{}"), ("g", '{"b":1}')],
            id="all at index 0, with new ids",
        ),
        pytest.param(
            [piece(0, name="f", arguments="{}"), piece(0, name="f", arguments=' {"b":1}')],
            [("f", "{}"), ("f", ' {"b":1}')],
            id="all at index 0, without ids",
        ),
        pytest.param(
            [piece(0, "a", name="f", arguments="{}"), piece(0, "a", name="f", arguments="{}")],
            [("f", "{}"), ("f", "{}")],
            id="all at index 0, with one id",
        ),
        pytest.param(
            [piece(None, name="f", arguments={"a": 1}), piece(None, name="g", arguments={"b": 1})],
            [("f", '{"a": 1}'), ("g", '{"b": 1}')],
            id="without index and ids, with objects",
        ),
        pytest.param(
            [
                piece(0, "a", name="f", arguments="{"),
                piece(0, "b", name="g", arguments='{"b":'),
                piece(0, "a", arguments="}"),
                piece(0, "b", arguments="1}"),
            ],
            [("f", "{}"), ("g", '{"b":1}')],
            id="all at index 0, by turns",
        ),
        pytest.param(
            [
                piece(0, "a", name="f", arguments="{"),
                piece(0, "b", arguments='"a":1'),
                piece(0, "c", arguments="}"),
            ],
            [("f", '{"a":1}')],
            id="another id with every piece",
        ),
        pytest.param(
            [piece(1, "b", name="g", arguments="{}"), piece(0, "a", name="f", arguments="{}")],
            [("f", "{}"), ("g", "{}")],
            id="the second first",
        ),
        pytest.param(
            [piece(0, "a", name="get", arguments=""), piece(0, name="_x", arguments="{}")],
            [("get_x", "{}")],
            id="a name that is cut",
        ),
        pytest.param(
            [piece(0, "a", name="f", arguments="{}"), piece(0, "", name="", arguments="")],
            [("f", "{}")],
            id="empty names and ids later on",
        ),
        pytest.param(
            [piece(0, "a", name="f", arguments="{}"), piece(0, arguments='{"b":1}')],
            [("f", '{}{"b":1}')],
            id="two objects in one call stay in it",
        ),
        pytest.param(
            [piece(0, name="f"), piece(0, "a", arguments="{"), piece(0, "a", arguments="}")],
            [("f", "{}")],
            id="an id that comes late",
        ),
        pytest.param(
            [piece(0, name="f"), piece(0, "a", name="f", arguments="{}")],
            [("f", "{}")],
            id="an id that comes late, with the name again",
        ),
        pytest.param(
            [chunk(tool_calls=[None, "x", {"index": "0", "function": {"name": "f", "arguments": None}}])],
            [("f", "")],
            id="garbage among calls",
        ),
        pytest.param(
            [
                chunk(function_call={"name": "f", "arguments": '{"a'}),
                chunk(function_call={"arguments": '":1}'}),
            ],
            [("f", '{"a":1}')],
            id="the call of old",
        ),
    ],
)
def test_calls_are_reported_apart(chunks: list[bytes], expected: list[tuple[str, str]]) -> None:
    """CHT-4"""
    assert calls_of(*chunks) == expected


def test_a_custom_call_is_put_together() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "grep", "input": "a"}}

    completion = assembled(
        chunk(tool_calls=[custom]), chunk(tool_calls=[{"index": 0, "custom": {"input": " b"}}])
    )

    assert completion.calls == (ToolCall(call_id="a", name="grep", arguments="a b", kind="other"),)


def test_ids_that_are_missing_are_made_up_as_in_a_whole_reply() -> None:
    body = b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}'

    streamed = assembled(piece(0, name="f", arguments="{}"), nth=3)

    assert streamed.calls == parse_completion(body, nth=3).calls


def test_pieces_of_one_character_take_no_longer_than_they_are_many() -> None:
    letters = [chunk(content="x"), piece(0, "a", name="f", arguments='{"a":"')]
    for _ in range(2_000):
        letters += [chunk(content="x"), piece(0, arguments="y")]

    completion = assembled(*letters, piece(0, arguments='"}'))

    assert completion.text == "x" * 2_001
    assert completion.calls[0].arguments == '{"a":"' + "y" * 2_000 + '"}'


def test_half_a_character_is_shown_with_its_other_half() -> None:
    assembly = CompletionAssembler()

    first = assembly.feed(rb'{"choices":[{"delta":{"content":"\ud83d"}}]}')
    second = assembly.feed(rb'{"choices":[{"delta":{"content":"\ude00"},"finish_reason":"stop"}]}')

    assert first is None
    assert second is not None
    assert plain(second.fields) == {"content": "😀"}
    assert assembly.finish().text == "😀"


def test_what_is_repeated_whole_with_every_piece_is_passed_over() -> None:
    assembly = CompletionAssembler()

    delta = assembly.feed(
        b'{"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}],"usage":{"n":1}}'
    )

    assert delta == CompletionDelta(fields={"content": msgspec.Raw(b'"a"')})
    assembly.feed(b"[DONE]")
    assert plain(assembly.finish().choice) == {}


def test_the_last_usage_and_the_last_of_a_head_stand() -> None:
    completion = assembled(
        b'{"id":"a","usage":{"n":1},"choices":[{"delta":{"content":"x"}}]}',
        b'{"id":"a","timings":{"t":1},"usage":{"n":2},"choices":[{"delta":{}}]}',
        b'{"id":null,"usage":null,"choices":null}',
        b'{"choices":[null]}',
    )

    assert plain(completion.usage) == {"n": 2}
    assert plain(completion.head) == {"id": "a", "timings": {"t": 1}}


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter"])
def test_a_finish_reason_needs_no_done(reason: str) -> None:
    """CHT-6"""
    assembly = CompletionAssembler()
    assembly.feed(chunk(content="x"))
    assembly.feed(chunk(reason))
    assembly.feed(chunk())

    assert assembly.finish().finish_reason == reason


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing came"),
        pytest.param([b"[DONE]"], id="nothing but an end"),
        pytest.param([b'{"choices":[]}', b"[DONE]"], id="nothing was said"),
        pytest.param([chunk(content="hal")], id="a text broke off"),
        pytest.param([piece(0, "a", name="f", arguments="{}")], id="a call that looks whole"),
    ],
)
def test_a_reply_that_broke_off_is_invalid(chunks: list[bytes]) -> None:
    """CHT-6"""
    assembly = CompletionAssembler()
    for data in chunks:
        assembly.feed(data)

    with pytest.raises(ModelUnavailable, match="broke off"):
        assembly.finish()


@pytest.mark.parametrize(
    ("error", "message", "status"),
    [
        pytest.param({"message": "too busy", "code": 503}, "too busy", 503, id="with a status"),
        pytest.param({"message": "no", "code": "rate_limit"}, "no", 502, id="with a word"),
        pytest.param({"message": "no", "code": 7}, "no", 502, id="with another number"),
        pytest.param("no", "no", 502, id="a text"),
        pytest.param(
            {"a": 1}, "the model's server broke off its response with an error", 502, id="without words"
        ),
    ],
)
def test_an_error_in_the_stream_is_the_models(error: Any, message: str, status: int) -> None:
    data = json.dumps({"error": error})

    with pytest.raises(ModelRefused) as refused:
        CompletionAssembler().feed(data.encode())

    assert str(refused.value) == message
    assert refused.value.data == {"status": status, "body": data}


def test_no_error_is_invalid() -> None:
    assert CompletionAssembler().feed(b'{"error":null,"choices":[]}') is None


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense", b"[]", b'{"choices":[{"delta":{"content":"\xff"}}]}', b'{"a":' + b"[" * 100_000],
)
def test_garbage_is_no_reply(data: bytes) -> None:
    with pytest.raises(ModelUnavailable, match="not a completion chunk"):
        CompletionAssembler().feed(data)


def test_a_reply_without_end_is_cut_off() -> None:
    assembly, half = CompletionAssembler(), chunk(content="x" * (MAX_COMPLETION_BYTES // 2))
    assembly.feed(half)

    with pytest.raises(ModelUnavailable, match=f"longer than {MAX_COMPLETION_BYTES} bytes"):
        assembly.feed(half)
