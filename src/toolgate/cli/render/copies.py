"""Copies of a whole registry: written and read."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.escape import escape_line
from toolgate.cli.render.layout import OK, count, sentence

Answer = Mapping[str, Any]


def render_backup(answer: Answer) -> RenderableType:
    """A copy that was written."""
    # A line of its own, to be copied whole.
    path = Text(f"  {escape_line(str(answer['path']))}", style="bold", no_wrap=True, overflow="ignore")
    return Group(sentence(Text("✓ ", style=OK), f"{_contents(answer)}, in"), path)


def render_import(answer: Answer) -> RenderableType:
    """A copy that was read."""
    return sentence(Text("✓ ", style=OK), f"imported {_contents(answer)}; nodes will list everything again")


def _contents(answer: Answer) -> str:
    return f"{count(answer['records'], 'record')} at revision {answer['revision']:,}"
