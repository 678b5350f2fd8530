"""Every error text that the troubleshooting page quotes is one that the program prints, word for word."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.source_tree import modules
from tests.docs.documents import document

PAGE = document("docs/troubleshooting.md")
VALUE = "…"
MESSAGES = sorted({line for block in PAGE.blocks("text") for line in block.splitlines() if line})
_MIN_WORDS = 2
"""A template needs that many words of its own: `{reason}: {error}` would match everything."""


def templates_of(tree: ast.AST) -> Iterator[str]:
    """The texts of a module as patterns: what is inserted into a text matches anything."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                re.escape(part.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else ".*"
                for part in node.values
            )


@cache
def templates() -> tuple[re.Pattern[str], ...]:
    found = {one for module in modules("src") for one in templates_of(module.tree)}
    return tuple(
        re.compile(one)
        for one in found
        if len(re.findall(r"[a-z]{2,}", re.sub(r"\\.", " ", one))) >= _MIN_WORDS
    )


def is_printed(message: str) -> bool:
    """Whether some text of the program can become this message."""
    return any(one.fullmatch(message) for one in templates())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_of_the_program(message: str) -> None:
    assert is_printed(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("this gateway requires a key", True, id="a whole text"),
        pytest.param(f"server `git` has {VALUE} calls in flight and {VALUE} waiting", True, id="with values"),
        pytest.param("this gateway requires a password", False, id="another word"),
        pytest.param("this gateway requires", False, id="a piece"),
        pytest.param(f"server `git` has {VALUE} calls in flight", False, id="cut off"),
    ],
)
def test_the_check_of_messages_sees_what_it_should(message: str, *, expected: bool) -> None:
    assert is_printed(message) is expected


def test_each_problem_has_a_fix() -> None:
    sections = re.split(r"^(?=###? )", PAGE.text, flags=re.MULTILINE)
    with_messages = [one for one in sections if "```text" in one]

    assert [
        one.partition("\n")[0] for one in with_messages if "**Fix.**" not in one and "**Cause.**" not in one
    ] == []
    assert len(with_messages) > 20
