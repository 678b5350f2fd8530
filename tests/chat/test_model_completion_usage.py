"""Usage is added up over rounds, whatever a server counts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.model_completion import add_usage, count_reported_tokens, is_usage_only, request_usage
from toolgate.model.json_text import Members, decode_members

COUNTS = st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens"]), st.integers(0, 2**60)
)
USAGES = st.builds(lambda flat, inner: flat | {"prompt_tokens_details": inner}, COUNTS, COUNTS)


def members(value: Any) -> Members:
    return decode_members(json.dumps(value).encode())


def added(*usages: Any) -> Any:
    total: Members | None = None
    for usage in usages:
        total = add_usage(total, None if usage is None else members(usage))
    return None if total is None else {name: json.loads(bytes(raw)) for name, raw in total.items()}


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        pytest.param([None, None], None, id="none at all"),
        pytest.param([None, {"a": 1}], {"a": 1}, id="only the second says"),
        pytest.param([{"a": 1}, None], {"a": 1}, id="only the first says"),
        pytest.param([{"a": 1}, {"a": 2, "b": 3}], {"a": 3, "b": 3}, id="numbers"),
        pytest.param([{"d": {"x": 1, "y": 2}}, {"d": {"x": 4}}], {"d": {"x": 5, "y": 2}}, id="objects"),
        pytest.param([{"a": 1, "d": {"x": 1}}, {"a": None, "d": None}], {"a": 1, "d": {"x": 1}}, id="null"),
        pytest.param([{"a": None}, {"a": 2}], {"a": 2}, id="null first"),
        pytest.param([{"t": "x"}, {"t": "y"}], {"t": "y"}, id="texts"),
        pytest.param([{"b": True}, {"b": True}], {"b": True}, id="truths are no numbers"),
        pytest.param([{"l": [1]}, {"l": [2]}], {"l": [2]}, id="lists"),
        pytest.param([{"c": 0.5}, {"c": 1}], {"c": 1.5}, id="costs"),
        pytest.param([{"a": {"x": 1}}, {"a": 2}], {"a": 2}, id="another shape"),
        pytest.param([{"a": 1e308}, {"a": 1e308}], {"a": 1e308}, id="a sum that is no number"),
    ],
)
def test_usage_of_rounds(usages: list[Any], expected: Any) -> None:
    assert added(*usages) == expected


def test_what_is_nested_beyond_reason_is_not_added() -> None:
    deep: Any = {"a": 1}
    for _ in range(400):
        deep = {"d": deep}

    assert added(deep, deep) == deep


@given(st.lists(USAGES, min_size=1, max_size=5))
def test_every_number_is_the_sum_of_the_rounds(usages: list[dict[str, Any]]) -> None:
    total = added(*usages)

    details = [usage["prompt_tokens_details"] for usage in usages]
    for found, rounds in [(total, usages), (total["prompt_tokens_details"], details)]:
        names = {name for one in rounds for name in one} - {"prompt_tokens_details"}
        assert {name: found[name] for name in names} == {
            name: sum(one.get(name, 0) for one in rounds) for name in names
        }


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            {"usage": {"prompt_tokens": 4, "total_tokens": 7}}, 7, id="a completion, or a piece of one"
        ),
        pytest.param({"usage": {"input_tokens": 4, "total_tokens": 9}, "response": None}, 9, id="a response"),
        pytest.param({"response": {"usage": {"total_tokens": 5}}}, 5, id="the event that ends a response"),
        pytest.param(
            {"response": {"usage": None}, "a": {"total_tokens": 5}}, 0, id="not said of the response"
        ),
        pytest.param({"usage": {"total_tokens": None}}, 0, id="null"),
        pytest.param({"usage": {"total_tokens": -3}}, 0, id="less than none"),
        pytest.param({"usage": {"total_tokens": "7"}}, 0, id="no number"),
        pytest.param({"usage": {"prompt_tokens": 4}}, 0, id="no total"),
        pytest.param(["total_tokens"], 0, id="no object"),
    ],
)
def test_what_an_answer_is_reported_to_have_taken(data: Any, expected: int) -> None:
    assert count_reported_tokens(json.dumps(data).encode()) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, {"include_usage": True}),
        ({"include_usage": False, "x": 1}, {"include_usage": True, "x": 1}),
        ({"include_usage": None}, {"include_usage": True}),
    ],
)
def test_what_a_streamed_chat_takes_is_requested(options: Any, expected: Any) -> None:
    body = {"messages": [], "stream": True, "n": 1.50, "stream_options": options}

    asking = request_usage(json.dumps(body).encode())

    assert asking is not None
    assert json.loads(asking) == body | {"stream_options": expected}


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[],"stream":true,"stream_options":{"include_usage":true}}',
        b'{"messages":[],"stream":false}',
        b'{"messages":[]}',
        b'{"input":[],"stream":true}',
        b'{"messages":[],"stream":true,"stream_options":7}',
        b"[]",
    ],
)
def test_what_is_requested_or_cannot_be_stays_as_it_is(body: bytes) -> None:
    assert request_usage(body) is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b'{"choices":[],"usage":{"total_tokens":7}}', True),
        (b'{"choices":[{}],"usage":{"total_tokens":7}}', False),
        (b'{"choices":7,"usage":{"total_tokens":7}}', False),
        (b'{"usage":{"total_tokens":7}}', False),
        (b'{"choices":[]}', False),
        (b"[DONE]", False),
    ],
)
def test_an_event_that_says_nothing_but_what_a_chat_took_is_known(event: bytes, expected: bool) -> None:
    assert is_usage_only(event) is expected
