"""The Markdown of the reference pages: short lines and compact tables, so that no reader must scroll."""

import inspect
import re
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Final

MARK: Final = "<!-- Written by docs/generate.py. Change the code it describes, then run it again. -->"
WIDTH: Final = 120

Rows = Sequence[tuple[str, str, str]]
"""What is limited, the limit, and what happens above it."""

_CODE = re.compile(r"`[^`]*`")


def page(title: str, intro: str, *blocks: str) -> str:
    """A whole page."""
    return "\n\n".join([MARK, f"# {title}", wrap(intro), *blocks]) + "\n"


def wrap(text: str, width: int = WIDTH) -> str:
    """One paragraph, broken between words only, and never inside code."""
    whole = _CODE.sub(lambda match: match[0].replace(" ", "\0"), " ".join(text.split()))
    return fill(whole, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def bullet(text: str) -> str:
    """One item of a list."""
    return "- " + wrap(text, WIDTH - 2).replace("\n", "\n  ")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table without padding, so that a change of one row changes no other."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(text: object) -> str:
    """`text` as code."""
    return f"`{text}`"


def sentence(docstring: str | None) -> str:
    """A docstring as running text."""
    return " ".join(inspect.cleandoc(docstring or "").split())


def size(count: int) -> str:
    """Bytes as people write them."""
    return f"{count // 2**20} MiB" if count % 2**20 == 0 else f"{count // 2**10} KiB"


def duration(seconds: float) -> str:
    """Seconds as people write them."""
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:g} min" if seconds > 300 and seconds % 60 == 0 else f"{seconds:g} s"
