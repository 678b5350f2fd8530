"""The token estimate: cheap, the same everywhere, and of the right size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.definitions import estimate_tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", 0, id="nothing"),
        pytest.param("   \n", 0, id="spaces are free"),
        pytest.param("read", 1, id="a short word is one"),
        pytest.param("definitions", 2, id="a long word is several"),
        pytest.param("read a file", 3, id="a word each"),
        pytest.param("2026", 2, id="digits go by threes"),
        pytest.param('{"type":"object"}', 5, id="signs join"),
        pytest.param("読み取り", 4, id="outside ASCII a character each"),
        pytest.param("né", 2, id="accents count"),
    ],
)
def test_estimate(text: str, expected: int) -> None:
    assert estimate_tokens(text.encode()) == expected


@given(st.text(), st.text())
def test_more_text_never_costs_less(text: str, more: str) -> None:
    assert estimate_tokens((text + more).encode()) >= estimate_tokens(text.encode())
