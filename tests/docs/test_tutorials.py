"""The tutorials after the first, followed to the letter: files written, commands typed, outputs compared."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.documents import EXAMPLES, Document, Step, document
from tests.docs.gateways import quick_start_gateway
from tests.docs.test_sessions import FOLLOWED, as_printed
from toolgate.cli import main

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:Write|Replace) `([^`]+)`")
_ID = re.compile(r"\b[0-9a-f]{16}\b")
# What differs from run to run: times, and hashes of commits and plans.
_VARIES = re.compile(r"\b(?:\d{4}-)?\d\d-\d\d \d\d:\d\d(?::\d\d)?\b|\b[0-9a-f]{32,40}\b")


class WrittenFile(NamedTuple):
    """A file that the reader writes."""

    name: str
    text: str


def parse_tutorial(tutorial: Document) -> Iterator[WrittenFile | Step]:
    """What the reader does, in order."""
    read_to = 0
    for block in _BLOCK.finditer(tutorial.text):
        language, text = block.groups()
        if language in {"toml", "json"}:
            name = _NAMED.findall(tutorial.text[read_to : block.start()])[-1]
            yield WrittenFile(name, text)
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Step(command, output.rstrip("\n").split("\n"))
        read_to = block.end()


def rename_ids(lines: list[str], expected: list[str], known: dict[str, str]) -> list[str]:
    """The lines with the ids of the document in place of those of this run, which `known` learns."""
    for found, shown in zip(_ID.findall("\n".join(lines)), _ID.findall("\n".join(expected)), strict=False):
        known.setdefault(shown, found)
    names = {found: shown for shown, found in known.items()}
    return [_ID.sub(lambda match: names.get(match[0], match[0]), line) for line in lines]


def mask(lines: list[str]) -> str:
    """The words alone: the document folds lines that are too long for it."""
    return _VARIES.sub("#", " ".join(" ".join(lines).split()))


def type_command(command: str) -> None:
    """As the reader does, in the shell."""
    if command.startswith("toolgate "):
        with suppress(SystemExit):
            main(shlex.split(command)[1:])
    else:
        subprocess.run(command, shell=True, check=True)


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_tutorial_goes_as_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TOOLGATE_KEY", raising=False)
    known: dict[str, str] = {}
    expected, printed = [], []
    with quick_start_gateway(tmp_path) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        monkeypatch.chdir(tmp_path / "repository")
        for part in parse_tutorial(document(name)):
            if isinstance(part, WrittenFile):
                Path(part.name).write_text(part.text, "utf-8")
                continue
            command = _ID.sub(lambda match: known.get(match[0], match[0]), part.command)
            capsys.readouterr()
            type_command(command)
            output = "".join(capsys.readouterr())
            lines = rename_ids(as_printed(output.splitlines(), gateway.url), part.output, known)
            expected.append((part.command, mask(part.output)))
            printed.append((part.command, mask(lines)))

    assert printed == expected
    assert len(printed) > 3


def test_every_file_of_the_tutorials_is_written_by_one() -> None:
    written = {
        part.text
        for name in FOLLOWED
        for part in parse_tutorial(document(name))
        if isinstance(part, WrittenFile)
    }

    assert {path.read_text("utf-8") for path in (EXAMPLES / "tutorials").iterdir()} == written
