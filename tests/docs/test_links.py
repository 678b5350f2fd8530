"""The documents hang together: links lead somewhere, lines are short, commands and variables exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.documents import ROOT, Document, document, documents
from toolgate.cli.root import app
from toolgate.settings import NAMES, PREFIX

MAX_LINE = 140
PARTS = ("tutorials", "how-to", "reference", "explanation")
VARIABLES = {
    *(PREFIX + name.upper() for name in NAMES),
    "TOOLGATE_CONTEXT",
    "TOOLGATE_KEY",
    "TOOLGATE_URL",
    "TOOLGATE_AUTHORIZATION",  # the bridge of Claude Desktop sends it
}
EVERY = pytest.mark.parametrize("checked", documents(), ids=str)


def is_broken(checked: Document, link: str) -> bool:
    if link.startswith(("https://", "http://")):
        return False
    name, _, anchor = link.partition("#")
    target = checked.path if not name else (checked.path.parent / name).resolve()
    if not target.exists():
        return True
    return bool(anchor) and anchor not in Document(target).anchors


@EVERY
def test_every_link_leads_somewhere(checked: Document) -> None:
    assert [link for link in checked.links if is_broken(checked, link)] == []


@EVERY
def test_no_line_is_too_long_to_read(checked: Document) -> None:
    assert [line for line in checked.text.splitlines() if len(line) > MAX_LINE] == []


@EVERY
def test_every_make_target_exists(checked: Document) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    assert {words[0] for words in checked.commands("make")} - targets == set()


@pytest.mark.parametrize("checked", [one for one in documents() if "adr" not in one.path.parts], ids=str)
def test_every_command_exists_with_its_options(checked: Document) -> None:
    """Decisions are never edited: they name commands as they were."""
    assert [words for words in checked.commands("toolgate") if not is_command(words)] == []


@EVERY
def test_every_variable_exists(checked: Document) -> None:
    named = set(re.findall(r"\bTOOLGATE_[A-Z_]+\b", checked.text))

    assert named - VARIABLES == set()


def is_command(words: list[str]) -> bool:
    """Whether the parser knows the command and its options. What follows `--` is for another program."""
    command: Any = typer.main.get_command(app)
    rest = words[: words.index("--")] if "--" in words else list(words)
    if rest[:1] == ["<noun>"]:
        return True
    while hasattr(command, "commands") and rest != ["--version"]:
        if command.invoke_without_command and not (rest and rest[0] in command.list_commands(None)):
            break  # a command that has others below it
        if not rest:
            return True  # a noun prints the help of its verbs
        command = command.get_command(None, rest.pop(0)) if command.list_commands(None) else None
        if command is None:
            return False
    known = {"--help", "-h", *(spelling for one in command.params for spelling in one.opts)}
    return all(word.partition("=")[0] in known for word in rest if word.startswith("-") and word != "-")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["servers", "list"], True, id="a command"),
        pytest.param(["plan", "-f", "FILE"], True, id="with an option"),
        pytest.param(["audit", "--task", "review"], True, id="a command that has others below it"),
        pytest.param(["audit", "verify"], True, id="one of those"),
        pytest.param(["--version"], True, id="the version"),
        pytest.param(["servers"], True, id="a noun"),
        pytest.param(["servers", "burn"], False, id="no such command"),
        pytest.param(["plan", "--force"], False, id="no such option"),
        pytest.param(
            ["servers", "add", "git", "--", "uvx", "--from", "git-mcp"], True, id="another's options"
        ),
    ],
)
def test_the_check_of_commands_sees_what_it_should(words: list[str], *, expected: bool) -> None:
    assert is_command(words) is expected


def test_every_guide_and_page_can_be_reached_from_the_index() -> None:
    index = document("docs/index.md")
    linked = {(index.path.parent / link).resolve() for link in index.links}
    pages = {page for part in PARTS for page in Path(ROOT, "docs", part).glob("*.md")}

    assert pages - linked == set()


def test_every_decision_is_in_its_index() -> None:
    index = document("docs/adr/README.md")

    assert sorted(index.links) == sorted(path.name for path in index.path.parent.glob("0*.md"))
