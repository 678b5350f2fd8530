"""Patterns: what they match, what they refuse to be, and what they cost."""

import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef
from toolgate.model.tools import UNSTATED
from toolgate.policy.patterns import MAX_PATTERN, Patterns, parse_pattern

if TYPE_CHECKING:
    from _typeshed import TraceFunction


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        pytest.param("read", "read", True, id="a name matches itself"),
        pytest.param("read", "read_file", False, id="anchored at the end"),
        pytest.param("file", "read_file", False, id="anchored at the start"),
        pytest.param("read", "Read", False, id="sco-5 case counts"),
        pytest.param("read", "read ", False, id="sco-5 a trailing space is another name"),
        pytest.param("read", "read\n", False, id="sco-5 a trailing newline is another name"),
        pytest.param("read*", "read\n", True, id="a star takes any character"),
        pytest.param("read", "read\u200b", False, id="sco-5 a zero-width space is another name"),
        pytest.param("*", "anything", True, id="a star matches all"),
        pytest.param("**", "anything", True, id="sco-8 two stars are one"),
        pytest.param("read_*", "read_", True, id="a star matches nothing at all"),
        pytest.param("*_file", "read_file", True, id="a star in front"),
        pytest.param("r*d*e", "read_file", True, id="stars in between"),
        pytest.param("a*a", "a", False, id="head and tail do not overlap"),
        pytest.param("a*bc*c", "abc", False, id="a piece and the tail do not overlap"),
        pytest.param("a*b*c", "ac", False, id="a piece in between is missing"),
        pytest.param("*ab*ab*", "xabab", True, id="pieces follow one another"),
        pytest.param("*ab*ab*", "xaab", False, id="a piece is not found twice in one place"),
        pytest.param("r??d", "read", True, id="a question mark is one character"),
        pytest.param("r?", "read", False, id="a question mark is not a star"),
        pytest.param("?", "", False, id="a question mark needs a character"),
        pytest.param("?", "é", True, id="a question mark takes a character, not a byte"),
        pytest.param("*a?c*", "xxabcx", True, id="a piece with a gap is searched for"),
        pytest.param("*a?a?b*", "aabxb", False, id="a piece with gaps keeps its distances"),
        pytest.param("*a?a?b*", "xaaaaxbx", True, id="a piece with gaps is found late"),
        pytest.param("?b*?b", "abab", True, id="gaps in head and tail"),
        pytest.param("?b*?b", "abb", False, id="gaps in head and tail do not overlap"),
        pytest.param("[a-z]*", "read", False, id="sco-8 brackets are characters"),
        pytest.param("[a-z]*", "[a-z]x", True, id="sco-8 brackets match themselves"),
        pytest.param("{a,b}", "a", False, id="sco-8 braces are characters"),
        pytest.param(".*", "read", False, id="sco-8 a dot is a character"),
        pytest.param("!x", "y", False, id="sco-8 no negation"),
        pytest.param("re\\*", "re*", False, id="no escaping"),
    ],
)
def test_a_pattern_without_a_slash_is_held_against_the_name(pattern: str, name: str, expected: bool) -> None:
    found = Patterns([pattern]).first_match(ToolRef("fs", name), effects=UNSTATED, is_deny=False)

    assert found == (pattern if expected else None)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("fs/read", True, id="server and tool"),
        pytest.param("git/read", False, id="another server"),
        pytest.param("fs/write", False, id="another tool"),
        pytest.param("fs/*", True, id="all of a server"),
        pytest.param("*/read", True, id="a tool of any server"),
        pytest.param("f?/r*", True, id="wildcards on both sides"),
        pytest.param("f/read", False, id="the server part is anchored"),
        pytest.param("*s/ead", False, id="the tool part is anchored"),
        pytest.param("/read", False, id="no server has no name"),
        pytest.param("fs/", False, id="no tool has no name"),
        pytest.param("fs/*/*", False, id="no server has a slash"),
    ],
)
def test_a_pattern_with_a_slash_is_held_against_server_and_name(pattern: str, expected: bool) -> None:
    found = Patterns([pattern]).first_match(ToolRef("fs", "read"), effects=UNSTATED, is_deny=False)

    assert found == (pattern if expected else None)


def test_a_tool_whose_name_has_a_slash_is_not_taken_for_another_servers_tool() -> None:
    assert (
        Patterns(["fs/read"]).first_match(ToolRef("evil", "fs/read"), effects=UNSTATED, is_deny=False) is None
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(("*", "read", "fs/read"), "read", id="the exact name first"),
        pytest.param(("*", "fs/read"), "fs/read", id="then the exact tool of the server"),
        pytest.param(("r*", "*/read", "?ead"), "*/read", id="then wildcards in order of text"),
    ],
)
def test_of_several_patterns_that_match_the_same_one_is_named_in_every_order(
    texts: tuple[str, ...], expected: str
) -> None:
    ref = ToolRef("fs", "read")

    assert Patterns(texts).first_match(ref, effects=UNSTATED, is_deny=False) == expected
    assert Patterns(reversed(texts)).first_match(ref, effects=UNSTATED, is_deny=False) == expected


def test_patterns_with_the_same_texts_are_equal_and_have_one_hash() -> None:
    one, other = Patterns(["b*", "a", "a"]), Patterns(["a", "b*"])

    assert one == other
    assert hash(one) == hash(other)
    assert one.texts == ("a", "b*")
    assert one != Patterns(["a"])


def test_patterns_know_of_which_servers_they_speak() -> None:
    patterns = Patterns(["a/x", "b/*", "c*/y"])

    assert patterns.server_ids == {"a", "b"}
    assert [patterns.names_server(one) for one in ("a", "b", "cc", "d")] == [True, True, True, False]
    assert not patterns.has_bare
    assert Patterns(["x"]).has_bare
    assert Patterns(["x*", "a/y"]).has_bare
    assert not Patterns([]).has_bare


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(("read",), True, id="a name"),
        pytest.param(("fs/read",), True, id="a tool of the server"),
        pytest.param(("w*", "re*"), True, id="a wildcard"),
        pytest.param(("git/read", "git/*", "x", "x*"), False, id="nothing"),
    ],
)
def test_patterns_know_whether_they_speak_of_any_tool_of_a_server(
    texts: tuple[str, ...], expected: bool
) -> None:
    assert Patterns(texts).matches_any("fs", {"list", "read"}) is expected


@pytest.mark.parametrize(
    "text", ["*", "read_file", "fs/read_*", "[a-z]{1}!x\\", "é", "a" * MAX_PATTERN], ids=ascii
)
def test_a_pattern_is_kept_as_written(text: str) -> None:
    assert parse_pattern(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "empty pattern", id="empty"),
        pytest.param(
            "a" * 129, f"the pattern `{'a' * 40}…` has 129 characters", id="longer than 128 characters"
        ),
        *(
            pytest.param(
                f"read{char}",
                f"the pattern `read{ascii(char)[1:-1]}` contains a space or an invisible character",
                id=f"sco-5 {char!a}",
            )
            for char in " \t\n\r\x00\x1b\x7f\x85\xa0\u200b\u202e\ufeff\u3000\ud800\U000e0041"
        ),
    ],
)
def test_a_text_that_cannot_be_a_pattern_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        parse_pattern(text)

    assert str(caught.value) == expected


def steps(patterns: Patterns, refs: Iterable[ToolRef]) -> int:
    """How many lines of Python the matching runs: a cost that no other load on the machine can change."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> "TraceFunction":
        nonlocal count
        # Only its own lines: the collector may run finalizers of anything in between.
        count += event == "line" and frame.f_globals["__name__"] == Patterns.__module__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for ref in refs:
            patterns.first_match(ref, effects=UNSTATED, is_deny=False)
    finally:
        sys.settrace(before)
    return count


HOSTILE: dict[str, Callable[[int], str]] = {
    "stars": lambda size: "*a" * (size // 2 - 1) + "*b",
    "many pieces": lambda size: "*aa" * (size // 3) + "*b",
    "a tail with gaps": lambda size: "*" + "a?" * (size // 2 - 1) + "b",
    "one long piece": lambda size: "*" + "a" * (size // 2) + "c*",
    "pieces with gaps": lambda size: "*a?" * (size // 4) + "*b",
    "one long piece with gaps": lambda size: "*" + "a?" * (size // 4) + "c*",
}


def name_of(size: int, number: int) -> str:
    """A name that matches far into a hostile pattern before it fails or fits."""
    return f"{number:04}{'a' * (size - 5)}b"


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_sco_9_the_cost_of_a_match_grows_no_faster_than_pattern_and_name(
    hostile: Callable[[int], str],
) -> None:
    costs = [steps(Patterns([hostile(size)]), [ToolRef("fs", name_of(size, 0))]) for size in (32, 64, 128)]

    assert all(doubled <= 2.2 * cost for cost, doubled in pairwise(costs)), costs


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_sco_9_a_pattern_of_128_characters_against_2000_names_costs_2000_times_one(
    hostile: Callable[[int], str],
) -> None:
    patterns = Patterns([parse_pattern(hostile(128))])
    names = [ToolRef("fs", name_of(128, number)) for number in range(2_000)]
    one = steps(patterns, names[:1])

    assert one <= 5 * 128
    assert steps(patterns, names) <= 2_000 * one


@pytest.mark.parametrize(
    ("pattern", "native", "expected"),
    [
        ("list?files", "list files", "list?files"),
        ("fs/list*", "list files", "fs/list*"),
        ("alias", "list files", "alias"),
        ("other", "list files", None),
        ("prompt:*", "prompt:x", None),
        ("prompt:x", "prompt:x", None),
    ],
)
def test_a_tool_with_an_alias_is_spoken_of_by_either_name_and_never_as_another_kind(
    pattern: str, native: str, expected: str | None
) -> None:
    assert (
        Patterns((pattern,)).first_match(ToolRef("fs", "alias"), native, effects=UNSTATED, is_deny=False)
        == expected
    )
