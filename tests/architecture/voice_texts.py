"""Finds the words that VOICE forbids in documents, in the console and in comments of configuration files.

Prose only: code blocks, inline code and link targets of Markdown are blanked first, so lines keep their
numbers. Sources of the console are searched whole, because the phrases of the list do not occur in code.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.source_tree import ROOT
from tests.architecture.voice import Finding, load_words

_FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`[^`\n]+`|\]\([^)\n]*\)")
_MEMBER: Final = re.compile(r"^ *[\w\"-]+\??: .*$", re.MULTILINE)
"""A member of the types that are generated from REST: its name is a wire name. Its description is prose."""
_DOCUMENTS: Final = ("*.md", "[a-z]*/README.md", "docs/**/*.md")
_CONSOLE: Final = ("console/src/**/*.ts", "console/src/**/*.tsx", "console/index.html")
_COMMENTED: Final = ("docs/examples/**/*.toml", "docs/examples/**/*.yaml", "examples/*.py", "Makefile")
_DECISIONS: Final = "docs/adr/"
"""Decisions are never edited, only superseded; their index quotes them."""


def find_in_texts() -> list[Finding]:
    """Every finding outside of the Python code."""
    found: list[Finding] = []
    for pattern in (*_DOCUMENTS, *_CONSOLE, *_COMMENTED):
        for path in ROOT.glob(pattern):
            name = str(path.relative_to(ROOT))
            if not name.startswith(_DECISIONS) and "node_modules" not in name:
                found += find_in_text(name, _read_prose(path))
    return sorted(found)


def find_in_text(name: str, text: str) -> Iterator[Finding]:
    """Find the forbidden phrases of one text. A phrase may run over the end of a line."""
    words = load_words()
    for pattern, advice in (*words.prose, *words.documents):
        spaced = re.compile(pattern.pattern.replace(" ", r"\s+(?:[*#/]+ )?"))
        for found in spaced.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Finding(name, line, f'"{" ".join(found[0].split())}"', advice)


def _read_prose(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.name.endswith(".d.ts"):
        return _MEMBER.sub(_blank, text)
    if path.suffix != ".md":
        return text
    if path.name == "CHANGELOG.md":
        text = _newest_version(text)
    return _INLINE.sub(_blank, _FENCE.sub(_blank, text))


def _newest_version(text: str) -> str:
    """Older versions of the changelog stay as they were released."""
    headings = list(re.finditer(r"^## ", text, re.MULTILINE))
    return text[: headings[1].start()] if len(headings) > 1 else text


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])
