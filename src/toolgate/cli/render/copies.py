"""Copies of a whole registry: written and read."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import OK, cell, count, sentence

Answer = Mapping[str, Any]


def render_backup(answer: Answer) -> RenderableType:
    """A copy that was written."""
    return sentence(Text("✓ ", style=OK), cell(answer["path"], "bold"), f": {_contents(answer)}")


def render_import(answer: Answer) -> RenderableType:
    """A copy that was read."""
    return sentence(Text("✓ ", style=OK), f"imported {_contents(answer)}; nodes will list everything again")


def _contents(answer: Answer) -> str:
    return f"{count(answer['records'], 'record')} at revision {answer['revision']:,}"
