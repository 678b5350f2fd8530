"""The documents of the repository, taken apart: blocks, links, headings, commands, terminal sessions."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Step(NamedTuple):
    """A command of a terminal session, and what it prints."""

    command: str
    output: list[str]


@dataclass(frozen=True)
class Document:
    """One Markdown file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def prose(self) -> str:
        """All that is outside of blocks."""
        return _FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_CODE.sub("", self.prose))

    @property
    def anchors(self) -> set[str]:
        """What its headings are called in a link, as GitHub has it."""
        headings = (heading.lower().replace(" ", "-") for heading in _HEADING.findall(self.prose))
        return {re.sub(r"[^\w-]", "", heading) for heading in headings}

    @property
    def code(self) -> list[str]:
        """The pieces of code in running text."""
        return _CODE.findall(self.prose)

    def blocks(self, *languages: str) -> list[str]:
        return [text for language, text in _FENCE.findall(self.text) if language in languages]

    def steps(self) -> Iterator[Step]:
        """Its terminal sessions, one command at a time."""
        for block in self.blocks("console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Step(command, output.rstrip("\n").split("\n"))

    def commands(self, program: str) -> Iterator[list[str]]:
        """The words after `program` wherever a command is shown: in sessions, scripts and running text."""
        lines = [step.command for step in self.steps()]
        lines += [line for block in self.blocks("sh") for line in block.splitlines()]
        for line in (*lines, *self.code):
            words = line.partition(" #")[0].strip()
            if words.removeprefix(".venv/bin/").startswith(f"{program} "):
                yield shlex.split(words)[1:]


def documents() -> list[Document]:
    """Everything people read, in order."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"]
    return [Document(path) for path in sorted(paths)]


def document(name: str) -> Document:
    return Document(ROOT / name)
