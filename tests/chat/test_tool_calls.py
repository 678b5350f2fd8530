"""Arguments of calls: one JSON object, or nothing runs."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.tool_calls import CallError, canonicalize, describe_error, parse_arguments
from toolgate.errors import CallTimedOut

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


@given(OBJECTS, st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_a_json_object_is_passed_on_as_it_was_written(
    value: dict[str, Any], is_ascii: bool, around: str
) -> None:
    text = around + json.dumps(value, ensure_ascii=is_ascii) + around

    assert parse_arguments(text) == text.encode()


@given(st.lists(st.tuples(st.text('a:"\\{[', max_size=2), VALUES), max_size=5))
def test_names_that_are_twice_are_seen_whatever_they_are(pairs: list[tuple[str, Any]]) -> None:
    """CHT-2"""
    text = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs)

    is_refused = isinstance(parse_arguments(f'{{"x": [{{{text}}}]}}'), CallError)

    assert is_refused == (len(dict(pairs)) < len(pairs))


@given(st.text() | st.text('{}[]":,ab1\\ue ', max_size=12))
def test_whatever_a_model_writes_is_one_object_or_a_stated_error(text: str) -> None:
    arguments = parse_arguments(text)

    if isinstance(arguments, CallError):
        assert (arguments.code, arguments.retryable) == ("mcp_invalid_arguments", True)
    else:
        assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(
    ("text", "sent_text"),
    [
        pytest.param("", "they are empty; without arguments, send `{}`", id="empty"),
        pytest.param(" \n", "they are empty", id="blank"),
        pytest.param("read a.txt", "not one complete JSON object", id="not JSON"),
        pytest.param('{"a": 1', "not one complete JSON object", id="cut off"),
        pytest.param('{"a": "b', "not one complete JSON object", id="cut off in a text"),
        pytest.param('{"a":1}{"b":2}', "not one complete JSON object", id="two objects"),
        pytest.param('{"a":1} then', "not one complete JSON object", id="words behind it"),
        pytest.param('```json\n{"a":1}\n```', "not one complete JSON object", id="in a fence"),
        pytest.param("{'a': 1}", "not one complete JSON object", id="Python"),
        pytest.param('{"a": NaN}', "not one complete JSON object", id="NaN"),
        pytest.param('{"a": 1e999}', "not one complete JSON object", id="out of range"),
        pytest.param(f'{{"a": {"1" * 5000}}}', "not one complete JSON object", id="digits"),
        pytest.param('{"a": "\\ud800"}', "not one complete JSON object", id="half a character, escaped"),
        pytest.param('{"a": "\ud800"}', "not one complete JSON object", id="half a character"),
        pytest.param("[]", "they are not a JSON object", id="array"),
        pytest.param("null", "they are not a JSON object", id="null"),
        pytest.param('"{}"', "they are not a JSON object", id="an object in a text"),
        pytest.param('{"a":1,"a":2}', "duplicate name", id="duplicate name"),
        pytest.param('{"b":[{"a":1,"a":1}]}', "duplicate name", id="duplicate name inside"),
        pytest.param('{"a":1,"\\u0061":2}', "duplicate name", id="duplicate name, escaped"),
        pytest.param('{"\\\\":1,"\\\\":2}', "duplicate name", id="duplicate backslash"),
        pytest.param('{"a":[' + "[]," * 30_000 + "1]}", "more than 20000 objects", id="very many arrays"),
        pytest.param('{"a":' + "[" * 64 + "]" * 64 + "}", "deeper than 64", id="too deep"),
        pytest.param('{"a":' + "[" * 19_999, "not one complete JSON object", id="a depth bomb"),
        pytest.param(f'{{"a":"{"x" * 10_000_000}"}}', "longer than 1048576 bytes", id="10 MB"),
        pytest.param(f'{{"a":"{"é" * 600_000}"}}', "longer than 1048576 bytes", id="bytes, not characters"),
    ],
)
def test_arguments_that_are_not_one_object_are_refused(text: str, sent_text: str) -> None:
    """CHT-2"""
    error = parse_arguments(text)

    assert isinstance(error, CallError)
    assert sent_text in error.message
    assert error.detail == {
        "error": {"code": "mcp_invalid_arguments", "message": error.message, "retryable": True}
    }
    assert len(error.message) < 300


def test_signs_within_texts_are_no_structure() -> None:
    text = json.dumps({"a": '{"a": [[:' * 20_000, '\\"': "\\", ":": {":": 1}})

    assert parse_arguments(text) == text.encode()


def test_arguments_may_be_as_deep_as_is_published() -> None:
    text = '{"a":' + "[" * 63 + "]" * 63 + "}"

    assert parse_arguments(text) == text.encode()


@given(OBJECTS)
def test_the_same_arguments_have_one_canonical_form(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))

    assert canonicalize(json.dumps(value).encode()) == canonicalize(json.dumps(turned, indent=1).encode())


@given(st.dictionaries(st.sampled_from(string.ascii_letters), st.integers(0, 1), max_size=3), st.data())
def test_other_arguments_have_another_canonical_form(value: dict[str, int], data: st.DataObject) -> None:
    other = data.draw(st.dictionaries(st.sampled_from(string.ascii_letters), st.integers(0, 1), max_size=3))

    are_same = canonicalize(json.dumps(value).encode()) == canonicalize(json.dumps(other).encode())

    assert are_same == (value == other)


def test_a_failure_of_the_gateway_is_reported_with_its_hint() -> None:
    received = describe_error(CallTimedOut("no answer within 3 s", hint="ask for less"))

    assert received == CallError(
        code=CallTimedOut.code, message="no answer within 3 s. ask for less", retryable=CallTimedOut.retryable
    )
