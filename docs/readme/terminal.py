"""Reads what a program prints to a terminal, and keeps the rows that a person would see.

Only the control sequences that our own output uses are known. Any other is an error, so that no picture is
silently wrong.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

COLUMNS: Final = 80
"""The width that all documents show, and the narrowest that the command line is laid out for."""
_CONTROL: Final = re.compile(
    r"\x1b\[(?P<private>\?)?(?P<numbers>[\d;]*)(?P<final>[A-Za-z])|[\r\n]|[^\x1b\r\n]+"
)
_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


@dataclass(frozen=True, slots=True)
class Style:
    """How a piece of text looks."""

    colour: str = ""
    bold: bool = False
    dim: bool = False
    italic: bool = False


class Run(NamedTuple):
    """Consecutive text of one style, and the column it starts at."""

    column: int
    text: str
    style: Style


Row = tuple[Run, ...]
Screen = tuple[Row, ...]
PLAIN: Final = Style()
_BLANK: Final = (" ", PLAIN)


class Terminal:
    """The visible rows of a terminal with `rows` rows of `COLUMNS` characters."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._cells: list[list[tuple[str, Style]]] = [[]]
        self._line = self._column = 0
        self._style = PLAIN

    def feed(self, output: str) -> None:
        """Show more output. Raises ValueError at a control sequence that it does not know."""
        end = 0
        for found in _CONTROL.finditer(output):
            if found.start() != end:
                break
            end = found.end()
            if found["final"]:
                self._control(found)
            elif found[0] == "\n":
                self._line_feed()
            elif found[0] == "\r":
                self._column = 0
            else:
                self._write(found[0])
        if end != len(output):
            raise ValueError(f"unknown control sequence: {output[end : end + 10]!r}")

    def screen(self) -> Screen:
        """The rows as they are now, without the blank ones at the end."""
        rows = [_runs(cells) for cells in self._cells]
        while rows and not rows[-1]:
            rows.pop()
        return tuple(rows)

    def _write(self, text: str) -> None:
        for character in text:
            if self._column == COLUMNS:
                self._line_feed()
                self._column = 0
            cells = self._cells[self._line]
            cells.extend([_BLANK] * (self._column + 1 - len(cells)))
            cells[self._column] = (character, self._style)
            self._column += 1

    def _line_feed(self) -> None:
        self._line += 1
        if self._line == len(self._cells):
            self._cells.append([])
        if len(self._cells) > self._rows:
            del self._cells[0]
            self._line -= 1

    def _control(self, found: re.Match[str]) -> None:
        numbers = [int(one or 0) for one in found["numbers"].split(";")]
        match found["private"], found["final"]:
            case "?", "h" | "l":  # the cursor is shown or hidden: pictures have their own
                pass
            case None, "m":
                for number in numbers:
                    self._style = _restyle(self._style, number)
            case None, "A":
                self._line = max(0, self._line - max(1, numbers[0]))
            case None, "K":
                cells = self._cells[self._line]
                del cells[0 if numbers[0] == 2 else self._column :]
            case _:
                raise ValueError(f"unknown control sequence: {found[0]!r}")


def _restyle(style: Style, number: int) -> Style:
    match number:
        case 0:
            return PLAIN
        case 1:
            return replace(style, bold=True)
        case 2:
            return replace(style, dim=True)
        case 3:
            return replace(style, italic=True)
        case 22:
            return replace(style, bold=False, dim=False)
        case 39:
            return replace(style, colour="")
        case _ if 30 <= number <= 37:
            return replace(style, colour=_COLOURS[number - 30])
        case _ if 90 <= number <= 97:
            return replace(style, colour=_COLOURS[number - 90])
        case _:
            raise ValueError(f"unknown style: {number}")


def _runs(cells: list[tuple[str, Style]]) -> Row:
    runs: list[Run] = []
    for column, (character, style) in enumerate(cells):
        if runs and runs[-1].style == style and runs[-1].column + len(runs[-1].text) == column:
            runs[-1] = runs[-1]._replace(text=runs[-1].text + character)
        else:
            runs.append(Run(column, character, style))
    return tuple(piece for run in runs for piece in _without_gaps(run))


def _without_gaps(run: Run) -> list[Run]:
    """Split at two or more blanks: each column of a table is placed alone, whatever the font's width."""
    words = re.finditer(r"\S+(?: \S+)*", run.text)
    return [Run(run.column + word.start(), word[0], run.style) for word in words]
