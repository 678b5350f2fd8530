"""The recording of the README: what a terminal shows, and how it is drawn over time."""

import xml.etree.ElementTree as ET

import pytest
from readme.film import Frame, draw_film
from readme.terminal import COLUMNS, PLAIN, Run, Style, Terminal
from readme.text import rewrite_sessions

SVG = "{http://www.w3.org/2000/svg}"


def shown(*outputs: str, rows: int = 5) -> list[str]:
    """The rows after these outputs, as plain text."""
    terminal = Terminal(rows)
    for output in outputs:
        terminal.feed(output)
    lines = []
    for row in terminal.screen():
        line = ""
        for run in row:
            line = line.ljust(run.column) + run.text
        lines.append(line)
    return lines


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param("one\r\ntwo\r\n", ["one", "two"], id="lines"),
        pytest.param("old text\rnew", ["new text"], id="over what was there"),
        pytest.param("gone\r\x1b[2Kkept", ["kept"], id="erase a line"),
        pytest.param("kept gone\r\x1b[5C\x1b[K", None, id="an unknown sequence"),
        pytest.param("one\r\ntwo\x1b[1A\r\x1b[2Kzero", ["zero", "two"], id="up"),
        pytest.param("\x1b[?25lhidden cursor\x1b[?25h", ["hidden cursor"], id="the cursor"),
        pytest.param("a" * (COLUMNS + 1), ["a" * COLUMNS, "a"], id="wraps"),
        pytest.param("1\r\n2\r\n3\r\n4\r\n5\r\n6", ["2", "3", "4", "5", "6"], id="scrolls"),
    ],
)
def test_a_terminal_shows_what_a_person_would_see(output: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="unknown control sequence"):
            shown(output)
    else:
        assert shown(output) == expected


def test_output_that_is_cut_anywhere_shows_the_same() -> None:
    assert shown("git     12", " tools\r", "\n") == shown("git     12 tools\r\n") == ["git     12 tools"]


def test_columns_and_styles_are_runs_of_their_own() -> None:
    terminal = Terminal(1)
    terminal.feed("\x1b[1mgit\x1b[0m     12 tools \x1b[2;31mlate\x1b[0m")

    assert terminal.screen() == (
        (
            Run(0, "git", Style(bold=True)),
            Run(8, "12 tools", PLAIN),
            Run(17, "late", Style(colour="red", dim=True)),
        ),
    )


def test_a_row_is_drawn_once_for_as_long_as_it_stays() -> None:
    one, two, three = ((Run(0, text, PLAIN),) for text in ("one", "two", "three"))
    frames = [Frame(0, (one,)), Frame(1, (one, two)), Frame(3, (one, three))]
    film = draw_film(frames, rows=2, length_s=4, title="a <film>")
    root = ET.fromstring(film)
    style = "".join(root.find(f"{SVG}style").itertext())  # type: ignore[union-attr]

    assert [text.text for text in root.iter(f"{SVG}text")] == ["one", "two", "three"]
    assert "@keyframes s0{0.00%{visibility:visible}100%{visibility:visible}}" in style
    assert "@keyframes s1{0%{visibility:hidden}25.00%{visibility:visible}75.00%{visibility:hidden}}" in style
    assert "@keyframes s2{0%{visibility:hidden}75.00%{visibility:visible}100%{visibility:visible}}" in style
    assert [group.get("class") for group in root.iter(f"{SVG}g")] == ["s s0 last", "s s1", "s s2 last"]


def test_sessions_are_replayed_and_other_text_stays() -> None:
    text = "Before.\n\n```console\n$ one\nold\n$ two\n```\n\n```sh\n$ kept\n```\n"

    assert rewrite_sessions(text, lambda command: f"output of {command}\n") == (
        "Before.\n\n```console\n$ one\noutput of one\n$ two\noutput of two\n```\n\n```sh\n$ kept\n```\n"
    )
