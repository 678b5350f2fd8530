"""Usage is added up over rounds, whatever a server counts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.usage import add_usage
from toolgate.model.raw import Members, decode_members

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
