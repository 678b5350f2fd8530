"""JSON in pieces: joined, merged, made longer, or replaced."""

import json
from typing import Any

import pytest

from toolgate.chat.streamed_completion import PartialValue, join_pieces, merge_pieces
from toolgate.model.json_text import decode_members


def grown(*pieces: Any) -> Any:
    members: dict[str, PartialValue] = {}
    for piece in pieces:
        merge_pieces(members, decode_members(json.dumps({"v": piece}).encode()))
    return json.loads(bytes(join_pieces(members)["v"]))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(["a", "b", "", "c"], "abc", id="texts are joined"),
        pytest.param([1, 2.5], 2.5, id="numbers are replaced"),
        pytest.param([True, False], False, id="truths are replaced"),
        pytest.param([None, "a", None], "a", id="null says nothing"),
        pytest.param([None, None], None, id="null alone is null"),
        pytest.param(["a", 1, "b"], "b", id="another shape replaces"),
        pytest.param([{"a": 1}, [2]], [2], id="another container replaces"),
        pytest.param(
            [{"a": "x"}, {"a": "y", "b": 1}, {"b": 2}], {"a": "xy", "b": 2}, id="objects are merged"
        ),
        pytest.param([[1], ["a"], [[2]]], [1, "a", [2]], id="lists are made longer"),
        pytest.param(
            [
                [{"index": 0, "t": "a"}, {"index": 1, "t": "b"}],
                [{"index": 1, "t": "c"}],
                [{"index": 0, "t": "d"}],
            ],
            [{"index": 0, "t": "ad"}, {"index": 1, "t": "bc"}],
            id="entries with an index are merged",
        ),
        pytest.param(
            [[{"index": 5, "t": "a"}, {"index": 5, "t": "b"}], [{"index": "5"}, {"t": "c"}]],
            [{"index": 5, "t": "ab"}, {"index": "5"}, {"t": "c"}],
            id="also within one list, and only by numbers",
        ),
        pytest.param(
            [{"id": "", "type": "t", "role": "r"}, {"id": "x", "type": "t", "role": "s"}, {"id": "y"}],
            {"id": "x", "type": "t", "role": "r"},
            id="what labels is said once",
        ),
        pytest.param([{"name": "f"}, {"name": "f"}, {"name": ""}], {"name": "f"}, id="a name is not doubled"),
        pytest.param([{"name": "f"}, {"name": "g"}], {"name": "fg"}, id="a name is joined"),
    ],
)
def test_pieces_grow_together(pieces: list[Any], expected: Any) -> None:
    assert grown(*pieces) == expected


def test_what_came_once_stays_as_it_was_written() -> None:
    members: dict[str, PartialValue] = {}
    merge_pieces(members, decode_members(b'{"a": {"x" : 1.0, "y":"\\u00e9"}, "b":1e2}'))

    assert {name: bytes(raw) for name, raw in join_pieces(members).items()} == {
        "a": b'{"x" : 1.0, "y":"\\u00e9"}',
        "b": b"1e2",
    }


@pytest.mark.parametrize("deep", ['{"a":', "["])
def test_what_is_nested_beyond_reason_is_replaced(deep: str) -> None:
    closing = "}" if deep.startswith("{") else "]"
    data = ('{"v":' + deep * 400 + "1" + closing * 400 + "}").encode()
    members: dict[str, PartialValue] = {}
    for _ in range(3):
        merge_pieces(members, decode_members(data))

    assert json.loads(bytes(join_pieces(members)["v"]))
