"""What is registered, as patterns find it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.worlds import offer, refs, snapshot
from toolgate.model.names import ToolRef
from toolgate.model.tools import UNSTATED
from toolgate.policy.patterns import Patterns
from toolgate.policy.rules import find_matching, list_names

PLATFORM = snapshot(
    offer("notes", "add", "log", allowed=()),
    offer("git", "push", "log", "prompt:review", "resource:file:///a", quarantined={"broken": "no schema"}),
    offer("off", "log", enabled=False),
)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["log"], ["git/log", "notes/log", "off/log"]),
        (["git/*"], ["git/broken", "git/log", "git/push"]),
        (["prompt:*"], ["git/prompt:review"]),
        (["resource:git/*"], ["git/resource:file:///a"]),
        (["notes/log", "push"], ["git/push", "notes/log"]),
        (["nowhere/*"], []),
        ([], []),
    ],
)
def test_all_that_is_registered_is_found_whatever_is_allowed_of_it(
    patterns: list[str], expected: list[str]
) -> None:
    assert tuple(find_matching(PLATFORM, Patterns(patterns), is_deny=False)) == refs(*expected)


words = st.text("git/*?prlo", min_size=1, max_size=8)


@given(st.lists(words, max_size=3))
def test_exactly_what_rules_would_match_is_found(texts: list[str]) -> None:
    patterns = Patterns(texts)
    every = sorted(
        ToolRef(server_id, name) for server_id, one in PLATFORM.servers.items() for name in list_names(one)
    )

    assert list(find_matching(PLATFORM, patterns, is_deny=False)) == [
        ref for ref in every if patterns.first_match(ref, effects=UNSTATED, is_deny=False) is not None
    ]
