"""What changed between two sets of definitions, so that it can be looked at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.definition_samples import JSON, tool
from toolgate.catalog.checks import InvalidDefinition
from toolgate.catalog.definitions import (
    MAX_DIFF_LINES,
    NOT_SHOWN,
    RenamedTool,
    ToolChanges,
    diff_definitions,
    diff_lines,
)


def tools(**definitions: dict[str, Any]) -> dict[str, bytes]:
    return {name: tool(name=name, **members) for name, members in definitions.items()}


def test_nothing_changed() -> None:
    reordered = b'{"inputSchema": {"type":"object"}, "description": "d", "name": "a", "icons": []}'
    plain = b'{"name": "a", "description": "d", "inputSchema": {"type": "object"}}'

    changes = diff_definitions({"a": plain}, {"a": reordered})

    assert changes == ToolChanges()
    assert not changes


def test_tools_come_and_go() -> None:
    changes = diff_definitions(tools(a={}, b={"description": "b"}), tools(a={}, d={}, c={"title": "C"}))

    assert changes == ToolChanges(added=("c", "d"), removed=("b",))
    assert changes


def test_a_tool_that_only_has_another_name_was_renamed() -> None:
    changes = diff_definitions(tools(a={}, b={"description": "b"}), tools(z={}, y={"description": "y"}))

    assert changes == ToolChanges(added=("y",), removed=("b",), renamed=(RenamedTool("a", "z"),))


@pytest.mark.parametrize(
    ("old", "new"),
    [(["a", "b"], ["z"]), (["a"], ["y", "z"]), (["a", "b"], ["y", "z"])],
    ids=["two to one", "one to two", "two to two"],
)
def test_where_several_could_have_been_renamed_none_was(old: list[str], new: list[str]) -> None:
    changes = diff_definitions(tools(**{name: {} for name in old}), tools(**{name: {} for name in new}))

    assert (changes.renamed, changes.removed, changes.added) == ((), tuple(old), tuple(new))


@pytest.mark.parametrize(
    ("members", "lines"),
    [
        pytest.param(
            {"description": "Reads two files."},
            ['-  "description": "Reads a file.",', '+  "description": "Reads two files.",'],
            id="description",
        ),
        pytest.param(
            {"annotations": {"readOnlyHint": True}}, ['+    "readOnlyHint": true'], id="annotations"
        ),
        pytest.param({"_meta": {"x": 1}}, ['+    "x": 1'], id="_meta"),
        pytest.param(
            {"description": "Reads a file.\u200b"}, ['+  "description": "Reads a file.\\u200b",'], id="hidden"
        ),
        pytest.param(
            {"description": "Reads a f\u202eile."}, ['+  "description": "Reads a f\\u202eile.",'], id="bidi"
        ),
    ],
)
def test_a_change_is_shown_line_by_line(members: dict[str, Any], lines: list[str]) -> None:
    changes = diff_definitions(tools(a={}), tools(a=members))

    assert set(lines) <= set(changes.changed["a"])
    assert changes.changed["a"][0].startswith("@@")


def test_long_texts_are_broken_where_people_would() -> None:
    text = "One.\nTwo \\n three.\n" + "word " * 60

    lines = diff_lines({}, {"description": text})

    assert '+  "description": "One.\\n' in lines
    assert "+Two \\\\n three.\\n" in lines
    assert max(map(len, lines)) <= 122
    assert "".join(line[1:] for line in lines if line.startswith("+")).count("word") == 60


def test_what_has_no_spaces_is_broken_all_the_same() -> None:
    lines = diff_lines({}, {"x": "y" * 1_000})

    assert max(map(len, lines)) <= 122
    assert "".join(lines).count("y") == 1_000


def test_a_diff_is_bounded_and_says_so() -> None:
    many = {str(number): number for number in range(MAX_DIFF_LINES + 100)}
    lines = diff_lines({}, many)
    assert len(lines) == MAX_DIFF_LINES + 1
    assert lines[-1].startswith("… and ")
    huge, other = ([number + start for number in range(3_000)] for start in (0, 10_000))
    assert diff_lines(huge, other)[0] == "-["


def test_so_are_all_diffs_together() -> None:
    schema = {"type": "object", "properties": {str(number): {} for number in range(900)}}
    names = [f"t{number}" for number in range(9)]

    changes = diff_definitions(
        tools(**{name: {} for name in names}), tools(**{name: {"inputSchema": schema} for name in names})
    )

    assert [changes.changed[name] == NOT_SHOWN for name in names] == [False] * 6 + [True] * 3


def test_what_is_no_definition_is_refused() -> None:
    with pytest.raises(InvalidDefinition):
        diff_definitions({"a": b"[]"}, {})


@given(old=st.dictionaries(st.sampled_from("abc"), JSON), new=st.dictionaries(st.sampled_from("abc"), JSON))
def test_every_tool_is_named_once_and_only_what_is_printable(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    changes = diff_definitions(
        {name: tool(name=name, _meta=value) for name, value in old.items()},
        {name: tool(name=name, _meta=value) for name, value in new.items()},
    )
    named = [
        *changes.added,
        *changes.removed,
        *(name for one in changes.renamed for name in (one.before, one.after)),
        *changes.changed,
    ]

    assert len(named) == len(set(named))
    assert old.keys() ^ new.keys() <= set(named) <= old.keys() | new.keys()
    assert all(line.isprintable() for lines in changes.changed.values() for line in lines)
