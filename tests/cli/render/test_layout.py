"""Text from servers reaches the terminal harmless (XSS-3)."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.screen import shown
from toolgate.cli.render.layout import encode_json, escape_block, escape_line, grid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain words", "plain words", id="plain text stays"),
        pytest.param("Grüße, 世界 🎉", "Grüße, 世界 🎉", id="letters of any language stay"),
        pytest.param("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m", id="colours are spelled out"),
        pytest.param(
            "\x1b]8;;http://evil\x07click", r"\x1b]8;;http://evil\x07click", id="OSC 8 links are spelled out"
        ),
        pytest.param("\x9b2J", r"\x9b2J", id="C1 controls too"),
        pytest.param("abc\u202edef", r"abc\u202edef", id="bidirectional overrides"),
        pytest.param("a\u200bb\u2060c\ufeffd", r"a\u200bb\u2060c\ufeffd", id="zero-width characters"),
        pytest.param("x\U000e0041y", r"x\U000e0041y", id="tag characters"),
        pytest.param("x\ufe00y\U000e0101z", r"x\ufe00y\U000e0101z", id="variation selectors that carry data"),
        pytest.param("\u3164\u2800", r"\u3164\u2800", id="letters that show nothing"),
        pytest.param("two\nlines\tand\r\nmore", "two lines and more", id="a line stays one line"),
        pytest.param("\ud800", r"\ud800", id="half a surrogate pair"),
    ],
)
def test_xss_3_a_line_shows_what_would_act_or_hide(text: str, expected: str) -> None:
    assert escape_line(text) == expected


def test_xss_3_a_block_keeps_its_lines_and_nothing_else() -> None:
    assert escape_block("one\n\ttwo\x1b[2J\r\nthree  ") == "one\n    two\\x1b[2J\nthree"


@given(st.text())
def test_xss_3_an_escaped_line_is_printable_and_has_no_controls(text: str) -> None:
    escaped = escape_line(text)

    assert escaped.isprintable()
    assert not any(unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co"} for one in escaped)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_xss_3_json_output_means_the_same_and_carries_no_controls(value: object) -> None:
    text = encode_json(value)

    assert json.loads(text) == value
    assert not any(unicodedata.category(one) in {"Cc", "Cf", "Cs"} for one in text)


def test_a_table_that_is_too_wide_lists_each_row_and_cuts_no_value() -> None:
    rows = [("a-server-with-a-long-name", "connected", 12), ("git", "", 7)]

    assert shown(grid("SERVER", "STATE", ">TOOLS", rows=rows), width=45) == [
        "SERVER                     STATE      TOOLS",
        "a-server-with-a-long-name  connected     12",
        "git                                       7",
    ]
    assert shown(grid("SERVER", "STATE", ">TOOLS", rows=rows), width=40) == [
        "SERVER  a-server-with-a-long-name",
        "STATE   connected",
        "TOOLS   12",
        "",
        "SERVER  git",
        "TOOLS   7",
    ]
