"""Arguments that a person is to agree to: told apart exactly, shown without secrets, and never too long."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InvalidArguments
from toolgate.gateway.call.approval import parse_approval_arguments
from toolgate.model.approvals import MAX_ARGUMENT_BYTES
from toolgate.model.json_text import find_deep_clash
from toolgate.redaction.arguments import MAX_ENTRIES
from toolgate.redaction.shapes import MASK

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def digest(text: str) -> str:
    return parse_approval_arguments(msgspec.Raw(text.encode())).digest


def shown(arguments: Any) -> Any:
    raw = parse_approval_arguments(msgspec.Raw(json.dumps(arguments).encode())).shown
    assert len(raw) <= MAX_ARGUMENT_BYTES
    return msgspec.json.decode(raw)


def test_order_spaces_and_spellings_of_texts_make_no_difference() -> None:
    assert digest('{"a":1,"b":{"c":"é","d":[1,2]}}') == digest('{ "b": {"d":[1, 2],"c":"\\u00e9"}, "a" : 1}')
    assert parse_approval_arguments(None) == parse_approval_arguments(msgspec.Raw(b"{}"))


@pytest.mark.parametrize(
    "other",
    [
        '{"n":2}',
        '{"n":"1"}',
        '{"n":1.0}',
        '{"n":100000000000000000000000000000000001}',
        '{"n":null}',
        '{"N":1}',
        '{"n":1,"m":null}',
        '{"n":[1]}',
        "{}",
    ],
)
def test_anything_else_is_another_call(other: str) -> None:
    assert digest('{"n":1}') != digest(other)


def test_numbers_are_not_rounded() -> None:
    assert digest('{"n":100000000000000000000001}') != digest('{"n":100000000000000000000002}')
    assert digest('{"n":0.1}') != digest('{"n":0.1000000000000000055}')


@pytest.mark.parametrize(
    "raw",
    [
        b'{"path":"/etc","path":"/tmp"}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":[{"b":1,"b":1}]}',
        b'{"n":NaN}',
        b'{"n":-Infinity}',
        b'{"t":"\\ud800"}',
        b'{"t":"\xff"}',
        b"[1]",
        b'{"a":1} {}',
        b"{",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=range(12),
)
def test_what_could_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    """Its server gets the bytes: it might take the other of the two."""
    with pytest.raises(InvalidArguments):
        parse_approval_arguments(msgspec.Raw(raw))


def test_secrets_are_masked_by_name_and_by_shape() -> None:
    arguments = {
        "api_key": "hunter2",
        "nested": [{"password": "x", "pin_token": 1234, "empty_token": "", "tokens": ["a", {"b": 1}]}],
        "text": "a Bearer abcdefgh12345 and https://ada:pw@host/x?token=abc",
        "path": "/tmp/x",
    }

    assert shown(arguments) == {
        "api_key": MASK,
        "nested": [{"password": MASK, "pin_token": MASK, "empty_token": "", "tokens": MASK}],
        "text": f"a Bearer {MASK} and https://{MASK}@host/x?token={MASK}",
        "path": "/tmp/x",
    }


def test_numbers_that_a_reader_might_round_are_shown_as_they_are_spelled() -> None:
    raw = b'{"a":1,"b":-2.5,"c":1e400,"d":12345678901234567890,"e":1E2}'

    assert msgspec.json.decode(parse_approval_arguments(msgspec.Raw(raw)).shown) == {
        "a": 1,
        "b": -2.5,
        "c": "1e400",
        "d": "12345678901234567890",
        "e": "1E2",
    }


def test_what_is_too_long_is_cut_visibly() -> None:
    long = shown({"text": "x" * 100_000, "path": "/tmp/x"})
    many = shown({"paths": [f"/tmp/{n}" * 10 for n in range(1_000)]})
    wide = shown({f"name{n}": "y" * 50 for n in range(1_000)})

    assert long == {"text": f"{'x' * 2_048}… (100000 characters)", "path": "/tmp/x"}
    assert len(many["paths"]) == MAX_ENTRIES + 1
    assert many["paths"][-1] == f"… {1_000 - MAX_ENTRIES} more"
    assert wide["…"] == f"{1_000 - MAX_ENTRIES} more"


def test_no_member_is_hidden_without_a_word() -> None:
    alike = shown({**{"n" * 3_000 + str(n): n for n in range(3)}, "…": "0 more", "path": "/tmp/x"})

    assert alike["path"] == "/tmp/x"
    assert alike["…"] == "3 more"


def test_what_cannot_be_shown_at_all_says_so() -> None:
    deep = {f"k{n}": {f"l{m}": "z" * 60 for m in range(60)} for n in range(60)}

    assert list(shown(deep)) == ["…"]


@given(st.dictionaries(st.text(), VALUES, max_size=6).filter(lambda one: find_deep_clash(one) is None))
def test_any_arguments_have_one_digest_and_can_be_shown(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    if "\\ud" in text:  # a lone half of a character: refused above
        return
    again = json.dumps(dict(reversed(arguments.items())), indent=1, ensure_ascii=False)

    assert digest(text) == digest(again)
    assert isinstance(shown(arguments), dict)
