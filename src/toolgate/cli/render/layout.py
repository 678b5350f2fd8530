"""Text from servers, made harmless for a terminal: what could move, hide or reorder it is spelled out.

Tool descriptions, errors and results are written by others. Escape sequences, bidirectional controls
and invisible characters are shown as `\x1b` or `\u202e`, never passed on.

Times as people read them: by UTC, whatever the clock of the terminal says.

The few shapes all output is made of. All text of others is escaped here.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toolgate.model.json_text import encode_json, escape_invisible

__all__ = ["encode_json", "escape_block", "escape_line"]


def escape_line(text: str) -> str:
    """`text` on one line: line breaks and tabs become spaces, everything else unsafe is spelled out."""
    return escape_invisible(" ".join(text.split()), _escape_character)


def escape_block(text: str) -> str:
    """`text` with its line breaks kept, for logs and error output of servers."""
    return "\n".join(
        escape_invisible(line.expandtabs(4).rstrip(), _escape_character) for line in text.splitlines()
    )


def _escape_character(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


DAY_FORMAT: Final = "%Y-%m-%d"
MINUTE_FORMAT: Final = f"{DAY_FORMAT} %H:%M"
SECOND_FORMAT: Final = f"{MINUTE_FORMAT}:%S"


def render_time(at_ms: float, form: str = SECOND_FORMAT) -> str:
    """A time in unix milliseconds, as `form` writes it."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):{form}}"


OK = "green"
WARN = "yellow"
BAD = "red"
DIM = "dim"


def cell(value: Any, style: str = "") -> Text:
    """Anything as one line of harmless text; nothing stays empty."""
    return Text(escape_line("" if value is None else str(value)), style=style)


def grid(*columns: str, flexible: Collection[str] = ()) -> Table:
    """A table without lines. The `flexible` columns wrap at words; the others keep to one line."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        if name in flexible:
            table.add_column(name, ratio=1, overflow="fold")
        else:
            table.add_column(name, no_wrap=True)
    return table


def fact_table(width: int) -> Table:
    """A grid of `width` columns without a heading, the last of them flexible."""
    table = grid(*map(str, range(width)), flexible={str(width - 1)})
    table.show_header = False
    return table


def join_names(values: Iterable[str], style: str = "") -> Text:
    """Names one after the other, to be wrapped between them and never within."""
    return Text(", ").join([cell(value, style) for value in values])


def sentence(*parts: Text | str) -> Text:
    """Text put together from plain words and styled pieces."""
    return Text.assemble(*parts)


def stack_parts(*parts: RenderableType | None) -> Group:
    """Parts under each other, with an empty line between two of them."""
    shown = [part for part in parts if part is not None]
    spaced: list[RenderableType] = []
    for part in shown:
        spaced += [part, ""]
    return Group(*spaced[:-1])


def indent(part: RenderableType) -> Padding:
    """`part`, two columns in."""
    return Padding(part, (0, 0, 0, 2), expand=False)


def copyable(text: str) -> Text:
    """Lines to be copied: the terminal may break them, we may not. Nothing of a server's goes in here."""
    return Text("\n".join(f"  {line}" for line in text.splitlines()), no_wrap=True, overflow="ignore")


def diff_line(line: str) -> Text:
    """One line of a diff. None of it is lost, however long its words are."""
    styles = {"+": OK, "-": BAD, "@": DIM}
    return Text(escape_block(line), style=styles.get(line[:1], ""), overflow="fold")


def render_warnings(found: Iterable[Any]) -> Group | None:
    """The gateway's warnings, one a line; nothing when there are none."""
    lines = [sentence(Text("warning: ", style=WARN), cell(one)) for one in found]
    return Group(*lines) if lines else None


def count_of(number: int, word: str) -> str:
    """`1 tool`, `2 tools`, `1,234 tools`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def render_newest(table: RenderableType, answer: Mapping[str, Any], shown: int) -> RenderableType:
    """A list of which the `answer` has the newest; where there are more, that is said below it."""
    if answer.get("next_cursor") is None:
        return table
    return stack_parts(table, Text(f"the newest {shown:,} of more: see --limit", style=DIM))


def health_of(server: Mapping[str, Any]) -> Mapping[str, Any]:
    """A server's health in an answer; empty when it has none yet."""
    health = server.get("health")
    return health if isinstance(health, Mapping) else {}
