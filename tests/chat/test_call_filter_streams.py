"""Calls of what a request does not declare never pass; everything else does, as it came."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.call_filter import (
    MAX_CALLS,
    MAX_UNNAMED_PIECES,
    StreamContinuation,
    StreamFilter,
    filter_completion,
)
from toolgate.chat.client_tools import ClientTools
from toolgate.errors import ModelUnavailable

DECLARED = ClientTools(functions=frozenset({"mine", "also_mine"}), customs=frozenset({"grammar"}))
NAMES = ["mine", "also_mine", "mcp__fs__read", "theirs"]


def chunk(delta: dict[str, Any], finish: str | None = None, *, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    # Spaces and an unknown member: what is not touched is not respelled either.
    return json.dumps({"id": "c1", "created": 7, "odd": {"a": 1}, "choices": [choice], **more}).encode()


def piece(index: int | None = 0, name: str | None = None, arguments: str = "", **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"function": function, **({} if index is None else {"index": index}), **more}


def sift(stream: list[bytes], declared: ClientTools = DECLARED) -> list[bytes]:
    kept = StreamFilter(declared)
    return [data for one in stream if (data := kept.feed(one)) is not None]


def deltas(stream: list[bytes]) -> Iterator[dict[str, Any]]:
    for data in stream:
        for choice in json.loads(data)["choices"]:
            yield choice["delta"]


def accumulate(stream: list[bytes]) -> list[dict[str, str]]:
    """As clients add calls up: by their index, which must be the next or one there is."""
    calls: list[dict[str, str]] = []
    for delta in deltas(stream):
        for one in delta.get("tool_calls", []):
            assert one["index"] <= len(calls)
            if one["index"] == len(calls):
                calls.append({"id": "", "name": "", "arguments": ""})
            call = calls[one["index"]]
            call["id"] = one.get("id") or call["id"]
            call["name"] += one["function"].get("name") or ""
            call["arguments"] += one["function"].get("arguments") or ""
    return calls


@st.composite
def streams(
    draw: st.DrawFn, names: list[str], *, may_name_late: bool = True
) -> tuple[list[dict[str, str]], str, list[bytes]]:
    """Calls and text, in pieces of any size that come in any order in which a call's own pieces stay."""
    calls = [
        {"id": f"call_{at}", "name": name, "arguments": draw(st.text(max_size=6))}
        for at, name in enumerate(draw(st.lists(st.sampled_from(names), max_size=5)))
    ]
    text = draw(st.text(alphabet="ab ☃", max_size=5))
    repeats_ids, named_late = draw(st.booleans()), may_name_late and draw(st.booleans())
    queues: list[list[list[dict[str, Any]]]] = [[[{"content": letter}] for letter in text]]
    for at, call in enumerate(calls):
        head = [piece(at, None if named_late else call["name"], id=call["id"], type="function")]
        head += [piece(at, call["name"])] if named_late else []
        again = {"id": call["id"]} if repeats_ids else {}
        rest = [[piece(at, arguments=letter, **again)] for letter in call["arguments"]]
        queues.append([[{"tool_calls": [one]} for one in together] for together in (head, *rest)])
    pieces: list[dict[str, Any]] = []
    opened = 1
    while any(queues):
        # A call begins after the one before it has: indexes come in order.
        at = draw(st.sampled_from([at for at in range(min(opened + 1, len(queues))) if queues[at]]))
        opened = max(opened, at + 1)
        pieces += queues[at].pop(0)
    end = "tool_calls" if calls else "stop"
    stream = [chunk({"role": "assistant", "content": None}), *(chunk(one) for one in pieces), chunk({}, end)]
    return calls, text, stream


@given(streams(NAMES))
def test_exactly_the_declared_calls_pass_in_any_chunking(
    drawn: tuple[list[dict[str, str]], str, list[bytes]],
) -> None:
    calls, text, stream = drawn

    passed = sift(stream)

    assert accumulate(passed) == [call for call in calls if call["name"] in DECLARED.functions]
    assert "".join(delta.get("content") or "" for delta in deltas(passed)) == text
    assert sift(passed) == passed


@given(streams(["mine", "also_mine"], may_name_late=False))
def test_a_stream_of_declared_calls_passes_byte_for_byte(
    drawn: tuple[list[dict[str, str]], str, list[bytes]],
) -> None:
    _, _, stream = drawn

    assert sift(stream) == stream


@given(streams(["theirs"]))
def test_how_a_stream_ends_follows_from_what_remains(
    drawn: tuple[list[dict[str, str]], str, list[bytes]],
) -> None:
    calls, text, stream = drawn
    kept = StreamFilter(DECLARED)

    ends = [json.loads(data)["choices"][0]["finish_reason"] for one in stream if (data := kept.feed(one))]

    is_empty = bool(calls) and not text
    assert [end for end in ends if end] == ([] if is_empty else ["stop"])
    assert set(kept.empty_choices) == ({0} if is_empty else set())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from(["", "mine", "theirs", "function", "custom"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "x"]), inner),
    max_leaves=3,
)


def members_of(*names: str, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects some of whose members are as they should be, and some are anything."""
    optional = dict.fromkeys(names, JSON) | {name: one | JSON for name, one in known.items()}
    return st.fixed_dictionaries({}, optional=optional)


CALLED = members_of("arguments", name=st.sampled_from(NAMES))
CALLS = st.lists(members_of("index", "id", "type", function=CALLED, custom=CALLED), max_size=3)
DELTAS = members_of("role", "content", "refusal", tool_calls=CALLS, function_call=CALLED)
CHOICES = st.lists(members_of("index", "finish_reason", delta=DELTAS, message=DELTAS), max_size=2)
CHUNKS = members_of("id", "created", "usage", "error", choices=CHOICES)


@given(st.lists(CHUNKS, max_size=4), st.lists(CHUNKS, max_size=3))
def test_whatever_a_server_sends_no_undeclared_call_passes(first: list[Any], second: list[Any]) -> None:
    kept = StreamFilter(DECLARED)
    passed = []
    try:
        passed += [kept.feed(json.dumps(one).encode()) for one in first]
        rest = StreamContinuation(kept)
        passed += [rest.feed(json.dumps(one).encode()) for one in second] + [rest.end()]
        for one in first:
            response = filter_completion(json.dumps(one).encode(), DECLARED)
            passed.append(
                response
                if isinstance(response, bytes)
                else response.complete(json.dumps(second[:1]).encode())
            )
    except ModelUnavailable:
        pass  # what cannot be read does not pass

    for data in filter(None, passed):
        for choice in json.loads(data).get("choices") or []:
            for message in (choice.get("delta") or {}, choice.get("message") or {}):
                check_calls(message)


def test_calls_in_a_repeated_message_of_a_chunk_are_taken_out_too() -> None:
    message = {"content": "a", "tool_calls": [{"id": "a", "function": {"name": "theirs"}}]}
    sent = json.dumps({"choices": [{"index": 0, "delta": {"content": "a"}, "message": message}]})

    passed = StreamFilter(DECLARED).feed(sent.encode())

    assert passed is not None
    assert json.loads(passed)["choices"][0]["message"] == {"content": "a"}


def check_calls(message: dict[str, Any]) -> None:
    calls = [one for one in message.get("tool_calls") or [] if one.get("type") != "custom"]
    functions = [one.get("function") or {} for one in calls] + [message.get("function_call") or {}]
    assert {one["name"] for one in functions if one.get("name")} <= DECLARED.functions


def test_a_call_after_one_that_was_taken_out_has_its_index() -> None:
    stream = [
        chunk({"tool_calls": [piece(0, "theirs", id="a"), piece(1, "mine", id="b")]}),
        chunk({"tool_calls": [piece(1, arguments="{}")]}),
    ]

    calls = [one for delta in deltas(sift(stream)) for one in delta["tool_calls"]]

    assert calls == [piece(0, "mine", id="b"), piece(0, arguments="{}")]


def test_calls_that_all_have_index_zero_are_reported_apart_by_their_ids() -> None:
    stream = [
        chunk({"tool_calls": [piece(0, "theirs", "{", id="a")]}),
        chunk({"tool_calls": [piece(0, "mine", "{", id="b")]}),
        chunk({"tool_calls": [piece(0, None, "1", id="a")]}),
        chunk({"tool_calls": [piece(0, None, "2", id="b")]}),
        chunk({"tool_calls": [piece(0, None, "3")]}),
        chunk({"tool_calls": [piece(0, "theirs", "{}")]}),
    ]

    assert sift(stream) == [stream[1], stream[3], stream[4]]


def test_an_index_that_is_taken_is_not_given_twice() -> None:
    stream = [
        chunk({"tool_calls": [piece(0, "theirs", id="a")]}),
        chunk({"tool_calls": [piece(1, "mine", id="b")]}),
        chunk({"tool_calls": [piece(0, "mine", id="c")]}),
    ]

    calls = [one for delta in deltas(sift(stream)) for one in delta["tool_calls"]]

    assert [(one["id"], one["index"]) for one in calls] == [("b", 0), ("c", 1)]


def test_indexes_a_server_begins_at_one_stay_where_nothing_is_taken_out() -> None:
    stream = [
        chunk({"tool_calls": [piece(1, "mine", id="a")]}),
        chunk({"tool_calls": [piece(2, "mine", id="b")]}),
    ]

    assert sift(stream) == stream


def test_a_call_without_an_index_passes_by_its_name() -> None:
    stream = [
        chunk({"tool_calls": [piece(None, "theirs", id="a")]}),
        chunk({"tool_calls": [piece(None, "mine", id="b")]}),
    ]

    assert sift(stream) == stream[1:]


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        pytest.param({"type": "function", "function": {"name": "mine"}}, True, id="a declared function"),
        pytest.param({"type": "", "function": {"name": "mine"}}, True, id="without a type"),
        pytest.param({"type": "function", "function": {"name": "grammar"}}, False, id="of another type"),
        pytest.param({"type": "custom", "custom": {"name": "grammar"}}, True, id="a declared custom tool"),
        pytest.param({"custom": {"name": "grammar"}}, True, id="a custom tool without a type"),
        pytest.param(
            {"type": "custom", "custom": {"name": "mine"}}, False, id="a custom tool is no function"
        ),
        pytest.param(
            {"type": "mcp", "function": {"name": "mine"}}, False, id="CHT-5 a call of a hosted tool"
        ),
        pytest.param({"type": "function", "function": None}, False, id="never named"),
    ],
)
def test_what_a_call_names_decides(call: dict[str, Any], passes: bool) -> None:
    data = chunk({"content": "x", "tool_calls": [{"index": 0, **call}]})

    assert (sift([data]) == [data]) is passes


@pytest.mark.parametrize("name", ["mine", "theirs"])
def test_a_legacy_function_call_is_filtered_like_the_others(name: str) -> None:
    stream = [
        chunk({"role": "assistant", "content": None, "function_call": {"name": name, "arguments": ""}}),
        chunk({"function_call": {"arguments": "{}"}}),
        chunk({"content": "said"}),
        chunk({}, "function_call"),
    ]

    passed = sift(stream)

    if name == "mine":
        assert passed == stream
    else:
        assert list(deltas(passed)) == [{"role": "assistant", "content": None}, {"content": "said"}, {}]
        assert json.loads(passed[-1])["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "invented",
    [
        lambda at: piece(at, "theirs"),
        lambda at: piece(0, "mine", id=f"call_{at}"),
        lambda at: piece(at, None),
        lambda at: piece(at, type="mcp"),
    ],
    ids=["indexes", "ids", "calls without a name", "calls of other types"],
)
def test_calls_without_end_are_not_remembered_without_end(invented: Callable[[int], Any]) -> None:
    stream = [chunk({"tool_calls": [invented(at)]}) for at in range(MAX_CALLS + 2)]

    with pytest.raises(ModelUnavailable, match="more than 1024 calls"):
        sift(stream)


def test_of_a_call_without_a_name_only_its_beginning_is_kept() -> None:
    unnamed = [chunk({"tool_calls": [piece(0, arguments=str(at))]}) for at in range(MAX_UNNAMED_PIECES + 5)]

    passed = sift([*unnamed, chunk({"tool_calls": [piece(0, "mine", "!", id="a")]})])

    assert accumulate(passed) == [{"id": "a", "name": "mine", "arguments": "01234567!"}]


def test_usage_next_to_a_call_that_is_taken_out_passes() -> None:
    data = chunk({"tool_calls": [piece(0, "theirs")]}, usage={"total_tokens": 3})

    (passed,) = sift([data])

    assert json.loads(passed) == {
        "id": "c1",
        "created": 7,
        "odd": {"a": 1},
        "choices": [],
        "usage": {"total_tokens": 3},
    }
