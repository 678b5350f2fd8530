"""The shapes of all output. Text from servers is escaped here and nowhere else.

Tool descriptions, errors and results come from servers. Escape sequences, bidirectional controls and
invisible characters are shown as `\\x1b` or `\\u202e` and never passed on: they could move, hide or reorder
text.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toolgate.model.json_text import encode_json, escape_invisible

__all__ = ["encode_json"]

JsonObject = Mapping[str, Any]

OK = "green"
WARN = "yellow"
BAD = "red"
DIM = "dim"

# Times are shown in UTC, whatever the clock of the terminal says.
DAY_FORMAT: Final = "%Y-%m-%d"
MINUTE_FORMAT: Final = f"{DAY_FORMAT} %H:%M"
SECOND_FORMAT: Final = f"{MINUTE_FORMAT}:%S"


def open_console(*, to_stderr: bool = False) -> Console:
    """A console that prints what it is given and reads nothing into it."""
    return Console(stderr=to_stderr, markup=False, emoji=False, highlight=False)


def escape_line(text: str) -> str:
    """`text` on one line: line breaks and tabs become spaces, everything else unsafe is escaped."""
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


def render_time(at_ms: float, form: str = SECOND_FORMAT) -> str:
    """A time in unix milliseconds, as `form` writes it."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):{form}}"


def cell(value: Any, style: str = "") -> Text:
    """Any value as one line of harmless text; None is empty."""
    return Text(escape_line("" if value is None else str(value)), style=style)


def bold(value: Any) -> Text:
    return cell(value, "bold")


_NARROWEST: Final = 10
"""Columns in which a text that wraps is readable: a word or two."""


class Grid(Table):
    """A table whose values become cells, and are escaped.

    Where its columns do not fit, each row is a list of its values, one a line, so that no value is cut.
    """

    is_stacked_if_narrow = True

    def add_row(self, *values: Any, **more: Any) -> None:
        super().add_row(*map(_to_cell, values), **more)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.is_stacked_if_narrow or not self.show_header or self._fits(console, options):
            yield from super().__rich_console__(console, options)
            return
        headers = [_to_cell(column.header) for column in self.columns]
        for number, row in enumerate(zip(*(column.cells for column in self.columns), strict=True)):
            if number:
                yield ""
            yield unheaded_grid(
                2, ((header, value) for header, value in zip(headers, row, strict=True) if value)
            )

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether every column that keeps to one line has its width, and the others some room."""
        width = 2 * (len(self.columns) - 1)
        for column in self.columns:
            found = [Measurement.get(console, options, one).maximum for one in (column.header, *column.cells)]
            width += max(found) if column.no_wrap else min(max(found), _NARROWEST)
        return width <= options.max_width


def grid(*columns: str, rows: Iterable[Iterable[Any]] = ()) -> Grid:
    """A table without lines, of cells or of values that become cells.

    A column `>NAME` is aligned to the right. A column `NAME*` wraps at words, the others keep to one line.
    """
    table = Grid(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        name = column.removeprefix(">").removesuffix("*")
        if column.endswith("*"):
            table.add_column(name, ratio=1, overflow="fold")
        else:
            table.add_column(name, no_wrap=True, justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*row)
    return table


def unheaded_grid(width: int, rows: Iterable[Iterable[Any]] = ()) -> Grid:
    """A grid of `width` columns without a heading, of which the last wraps."""
    table = grid(*[""] * (width - 1), "*", rows=rows)
    table.show_header = False
    return table


def fact_table(facts: Mapping[str, Any], style: str = "") -> Grid:
    """Facts, one per line. Empty facts are left out."""
    cells = {label: _to_cell(value) for label, value in facts.items()}
    return unheaded_grid(2, ((cell(label, style), value) for label, value in cells.items() if value))


def _to_cell(value: Any) -> RenderableType:
    return cell(value) if value is None or isinstance(value, str | int | float) else value


def join_names(values: Iterable[Any], style: str = "") -> Text:
    """Names separated by commas, to be wrapped between them and never within."""
    return Text(", ").join([cell(value, style) for value in values])


sentence: Final = Text.assemble
"""Text put together from plain words and styled pieces."""


def done(*parts: Text | str) -> Text:
    """A sentence about what succeeded."""
    return Text.assemble(("✓ ", OK), *parts)


def failed(*parts: Text | str) -> Text:
    """A sentence about what failed."""
    return Text.assemble(("✗ ", BAD), *parts)


def stack_parts(*parts: RenderableType | None) -> Group:
    """Parts under each other, with an empty line between two of them."""
    spaced = [line for part in parts if part is not None for line in (part, "")]
    return Group(*spaced[:-1])


def group_parts(*parts: RenderableType | None) -> Group:
    return Group(*(part for part in parts if part is not None))


def indent(part: RenderableType) -> Padding:
    """`part`, two columns in."""
    return Padding(part, (0, 0, 0, 2), expand=False)


def unwrapped(text: str, style: str = "") -> Text:
    """Text to be copied, whose lines only the terminal may break."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def copyable(text: str, title: str = "", style: str = "bold") -> Group:
    """Indented lines to be copied, below a title. Never with text from servers."""
    lines = unwrapped("\n".join(f"  {line}" for line in text.splitlines()))
    return Group(*([Text(title, style=style)] if title else []), lines)


def render_diff_line(line: str) -> RenderableType:
    """One line of a diff, indented and never cut."""
    styles = {"+": OK, "-": BAD, "@": DIM}
    return indent(Text(escape_block(line), style=styles.get(line[:1], ""), overflow="fold"))


def render_warnings(found: Iterable[Any]) -> Group | None:
    """The gateway's warnings, one per line."""
    lines = [sentence(Text("warning: ", style=WARN), cell(one)) for one in found]
    return Group(*lines) if lines else None


def render_reason(layer: str, reason: str, rule: str) -> Text:
    head = sentence(bold(layer), ": ", cell(reason))
    return Text("\n").join([head, cell(rule, DIM)]) if rule else head


def count_of(number: int, word: str) -> str:
    """`1 tool`, `2 tools`, `1,234 tools`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def render_newest(
    member: str, render: Callable[[Any], RenderableType], response: JsonObject
) -> RenderableType:
    """The list in `member` of a response, with a note below it if there are older entries."""
    found = response[member]
    if response.get("next_cursor") is None:
        return render(found)
    return stack_parts(
        render(found), Text(f"the newest {len(found):,}; for older ones raise --limit", style=DIM)
    )


def health_of(server: JsonObject) -> JsonObject:
    """The health of a server in a response; empty without one."""
    health = server.get("health")
    return health if isinstance(health, Mapping) else {}
