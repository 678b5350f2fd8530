"""README.md is short, and its text, sessions and pictures state what the demo shows."""

import re
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from readme.film import CELL_WIDTH, PADDING
from readme.layers import describe_layers
from readme.record import ROWS, TYPED, UP, in_terminal, measure
from readme.terminal import PLAIN, Row, Run, Terminal
from readme.text import load_peers, rewrite_figures

from tests.docs.documents import ROOT, document
from tests.docs.gateways import TOOLGATE, Started, demo_gateway
from tests.docs.test_sessions import DEFAULT_URL
from toolgate import __version__

MAX_LINES: Final = 140
MAX_BYTES: Final = 200_000
PICTURES: Final = ROOT / "docs" / "readme"
README: Final = document("README.md")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
SVG: Final = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with demo_gateway(tmp_path_factory.mktemp("demo")) as started:
        yield started


def render_row(row: Row) -> str:
    text = ""
    for run in row:
        text = text.ljust(run.column) + run.text
    return text


def rows_of(picture: str) -> list[str]:
    """The rows that a recording draws, as plain text."""
    groups = ET.fromstring((PICTURES / picture).read_text("utf-8")).iter(f"{SVG}g")
    return [
        render_row(tuple(Run(column_of(text), "".join(text.itertext()), PLAIN) for text in group))
        for group in groups
    ]


def column_of(text: ET.Element) -> int:
    return round((float(text.attrib["x"]) - PADDING) / CELL_WIDTH)


def test_the_readme_is_short() -> None:
    assert len(README.text.splitlines()) <= MAX_LINES


def test_the_figures_of_the_readme_are_those_of_the_demo_and_of_the_comparison(demo: Started) -> None:
    figures = measure(demo.url)

    assert rewrite_figures(README.text, figures) == README.text
    drawn = ET.fromstring((PICTURES / "layers.svg").read_text("utf-8")).find(f"{SVG}title")
    assert drawn is not None
    assert drawn.text == describe_layers(figures.layers)


def test_the_recording_shows_what_its_commands_print(demo: Started) -> None:
    environment = {"PATH": str(Path(TOOLGATE).parent), "TERM": "xterm", "TOOLGATE_URL": demo.url}
    screens = []
    for command in TYPED:
        terminal = Terminal(ROWS)
        with in_terminal(command, environment) as running:
            terminal.feed("".join(one.text for one in running.read()).replace(demo.url, DEFAULT_URL))
        screens.append([TIME.sub("#", render_row(row)) for row in terminal.screen()])

    drawn = {TIME.sub("#", row) for row in rows_of("session.svg")}
    assert [[row for row in screen if row and row not in drawn] for screen in screens] == [[]] * len(TYPED)


def test_the_recording_shows_what_the_demo_prints(demo: Started) -> None:
    [start] = [at for at, line in enumerate(demo.lines) if line.startswith("Toolgate serves")]
    # The recording has `toolgate` on its PATH and the gateway at the default address.
    text = "\n".join(demo.lines[start:]).replace(f" --url {demo.url}", "").replace(demo.url, DEFAULT_URL)
    printed = text.replace(TOOLGATE, "toolgate").splitlines()

    assert [line for line in printed if line and line not in rows_of("session.svg")] == []


def test_the_recording_types_every_command() -> None:
    rows = rows_of("session.svg")

    assert [command for command in (UP, *TYPED) if f"$ {command}" not in rows] == []


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_small_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")

    assert len(text.encode()) <= MAX_BYTES
    assert re.findall(r"<script|<image|<foreignObject|href|@import|@font-face|url\(", text) == []
    assert "prefers-color-scheme:dark" in text


def test_every_picture_is_shown() -> None:
    shown = set(re.findall(r"docs/readme/[\w-]+\.(?:svg|png)", README.text))

    assert shown == {
        f"docs/readme/{path.name}" for kind in ("svg", "png") for path in PICTURES.glob(f"*.{kind}")
    }


def test_the_comparison_has_no_empty_cell() -> None:
    peers = load_peers()

    assert {len(row["values"]) for row in peers["row"]} == {len(peers["names"])}
    assert [row["what"] for row in peers["row"] if not all(row["values"])] == []
    assert str(peers["date"]) in README.text


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [newest, *_] = re.findall(
        r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", document("CHANGELOG.md").text, re.MULTILINE
    )

    assert (project["version"], newest) == (__version__, __version__)
    assert f"Version {__version__}." in README.text


def test_the_changelog_has_one_line_a_change() -> None:
    lines = document("CHANGELOG.md").text.splitlines()

    assert [line for line in lines if line.startswith("  ")] == []
    assert {line for line in lines if line.startswith("### ")} <= {
        f"### {group}" for group in ("Added", "Changed", "Fixed", "Security")
    }
