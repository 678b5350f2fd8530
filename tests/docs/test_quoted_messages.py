"""What the guides say a reader sees when something fails is what the program says, word for word."""

import ast
import re
from functools import cache

import pytest

from tests.architecture.source_tree import modules
from tests.docs.documents import Document, documents

HEADER = "| message | cause | do this |"
_ROW = re.compile(r"^\| (``?)(.+?) ?\1 \|")
_SHORT = 4
"""Characters of a piece between two values that say nothing."""


@cache
def texts() -> str:
    """All literal texts of the source, pieces of formatted ones included."""
    trees = (ast.walk(module.tree) for module in modules("src"))
    found = (node.value for tree in trees for node in tree if isinstance(node, ast.Constant))
    return "\n".join(one for one in found if isinstance(one, str))


def quoted(checked: Document) -> list[str]:
    """The messages in its tables of what fails. A row without code is a symptom, not a message."""
    tables = checked.text.split(HEADER)[1:]
    rows = [line for table in tables for line in table.partition("\n\n")[0].splitlines()[2:]]
    return [message[2] for message in map(_ROW.match, rows) if message is not None]


GUIDES = [one for one in documents() if HEADER in one.text]


@pytest.mark.parametrize("guide", GUIDES, ids=str)
def test_every_message_in_a_guide_is_one_of_the_program(guide: Document) -> None:
    pieces = {
        message: [piece for part in message.split("…") if len(piece := part.strip(" `")) >= _SHORT]
        for message in quoted(guide)
    }

    assert [one for one, parts in pieces.items() if not all(part in texts() for part in parts)] == []
    assert all(pieces.values())
