"""The source of the console: small modules, and few ways in which a text could become more than text."""

import re
from pathlib import Path

from tests.architecture.source_tree import ROOT, kept_files

SOURCE = ROOT / "console" / "src"
GENERATED = "api/schema.d.ts"
MAX_MODULE_LINES = 300
MORE_THAN_TEXT = re.compile(
    r"\b(?:href|src|srcSet|srcDoc|action|formAction)\s*=|(?:inner|outer)HTML|insertAdjacent|document\.write|"
    r"\beval\(|new Function|window\.open|location\.(?:assign|replace)|import\((?![\"'])"
)
# Each is led by what we wrote ourselves, but for where one logs in, which is looked at first.
KNOWN = {
    "pages/guides/index.tsx": ["href="],  # links of our own documents
    "pages/login/index.tsx": ["src="],
    "pages/playground/call-result.tsx": ["src="],  # data of plain formats: see its tests (XSS-4)
    "parts/connect-panel.tsx": ["href="],  # to a client's own scheme, whose query alone has what others wrote
    "parts/elsewhere.ts": ["location.assign", "window.open"],
    "parts/save-file.ts": ["href ="],
    "shell.tsx": ["href=", "src="],
}


def sources() -> dict[str, str]:
    """Every module that people wrote, by its path in the console's source."""
    files: list[Path] = [file for file in kept_files() if file.is_relative_to(SOURCE)]
    written = [file for file in files if re.search(r"(?<!\.test)\.tsx?$", file.name)]
    texts = {file.relative_to(SOURCE).as_posix(): file.read_text("utf-8") for file in written}
    texts.pop(GENERATED)
    return texts


def test_no_module_is_longer_than_its_cap() -> None:
    lengths = {name: text.count("\n") for name, text in sources().items()}

    assert {name: lines for name, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, text in sources().items() if not text.startswith("/**")] == []


def test_xss_6_no_text_of_a_stranger_becomes_a_link_or_anything_else_that_acts() -> None:
    found = {name: MORE_THAN_TEXT.findall(text) for name, text in sources().items()}

    assert {name: ways for name, ways in found.items() if ways} == KNOWN


def test_every_guide_that_a_page_leads_to_exists_with_its_heading() -> None:
    text = "".join(sources().values())
    guides = re.findall(r'guide[:=] ?"([^"]+)"', text) + re.findall(r'/guides/([a-z][^"`$]+)["`]', text)
    missing = []
    for guide in guides:
        name, _, heading = guide.partition("#")
        file = ROOT / "docs" / f"{name}.md"
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE) if file.is_file() else []
        slugs = {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", one.lower()).strip()) for one in headings}
        if not file.is_file() or (heading and heading not in slugs):
            missing.append(guide)

    assert guides
    assert missing == []
