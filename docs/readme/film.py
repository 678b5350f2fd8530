"""Draws rows of a terminal over time as one animated SVG: no script, no font and no host of others.

A row that stays the same is drawn once, and shown for as long as it stays. Colours follow the light or dark
scheme of the reader. A reader who asked for less motion sees the last screen alone.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from .terminal import COLUMNS, Row, Run, Screen

CELL_WIDTH: Final = 8.4
"""Of a character at 14 pixels: 0.6 em, as in most monospaced fonts. `textLength` fits others to it."""
LINE_HEIGHT: Final = 19
PADDING: Final = 16
BAR: Final = 30
"""The title bar of the window."""
_STYLE: Final = """\
svg{--bg:#fff;--bar:#eef0f3;--edge:#d0d7de;--fg:#1f2328;--dim:#656d76;--red:#b3261e;--green:#1a7f37;--yellow:#8a6100;\
--blue:#0550ae;--magenta:#8250df;--cyan:#1b7c83}
@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--bar:#161b22;--edge:#30363d;--fg:#e6edf3;--dim:#8d96a0;--red:#ff7b72;\
--green:#3fb950;--yellow:#d29922;--blue:#79c0ff;--magenta:#d2a8ff;--cyan:#56d4dd}}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;\
fill:var(--fg);white-space:pre}
.red{fill:var(--red)}.green{fill:var(--green)}.yellow{fill:var(--yellow)}.blue{fill:var(--blue)}\
.magenta{fill:var(--magenta)}.cyan{fill:var(--cyan)}.black,.white{fill:var(--fg)}
.dim{fill:var(--dim)}.bold{font-weight:700}.italic{font-style:italic}.title{fill:var(--dim);font-size:12px}
"""


class Frame(NamedTuple):
    """What the terminal shows from `at_s` on."""

    at_s: float
    screen: Screen


class _Span(NamedTuple):
    """From which to which frame a row is shown."""

    start: int
    end: int


def draw_film(frames: Sequence[Frame], *, rows: int, length_s: float, title: str) -> str:
    """The SVG. It loops after `length_s` seconds. `title` says what is shown to those who cannot see it."""
    width = round(COLUMNS * CELL_WIDTH) + 2 * PADDING
    height = rows * LINE_HEIGHT + BAR + 2 * PADDING
    pieces: list[str] = []
    spans: dict[_Span, str] = {}
    last = len(frames)
    for index in range(rows):
        for span, row in _spans(frames, index):
            name = spans.setdefault(span, f"s{len(spans)}")
            kept = " last" if span.end == last else ""
            pieces.append(f'<g class="s {name}{kept}">{_draw_row(row, index)}</g>')
    keyframes = "".join(_keyframes(name, span, frames, length_s) for span, name in spans.items())
    still = "@media(prefers-reduced-motion:reduce){.s{animation:none}.last{visibility:visible}}"
    moving = f".s{{visibility:hidden;animation:{length_s:g}s step-end infinite}}\n"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}{moving}{keyframes}{still}</style>\n{_draw_window(width, height)}\n"
        + "\n".join(pieces)
        + "\n</svg>\n"
    )


def _spans(frames: Sequence[Frame], index: int) -> list[tuple[_Span, Row]]:
    """Each thing that the row at `index` shows, and when. Nothing is drawn while it is blank."""
    found: list[tuple[_Span, Row]] = []
    start, shown = 0, ()  # type: int, Row
    for number, frame in enumerate([*frames, Frame(0, ())]):
        row = frame.screen[index] if index < len(frame.screen) else ()
        if row != shown or number == len(frames):
            if shown:
                found.append((_Span(start, number), shown))
            start, shown = number, row
    return found


def _keyframes(name: str, span: _Span, frames: Sequence[Frame], length_s: float) -> str:
    """Hidden, shown and hidden again, as percentages of the whole film."""
    start = 100 * frames[span.start].at_s / length_s
    steps = f"{start:.2f}%{{visibility:visible}}"
    if span.start:
        steps = "0%{visibility:hidden}" + steps
    if span.end < len(frames):
        steps += f"{100 * frames[span.end].at_s / length_s:.2f}%{{visibility:hidden}}"
    else:
        steps += "100%{visibility:visible}"
    return f"@keyframes {name}{{{steps}}}.{name}{{animation-name:{name}}}\n"


def _draw_row(row: Row, index: int) -> str:
    y = BAR + PADDING + index * LINE_HEIGHT + 14
    return "".join(_draw_run(run, y) for run in row)


def _draw_run(run: Run, y: int) -> str:
    x = PADDING + run.column * CELL_WIDTH
    flags = {"bold": run.style.bold, "dim": run.style.dim, "italic": run.style.italic}
    classes = " ".join(filter(None, [run.style.colour, *(name for name, is_set in flags.items() if is_set)]))
    styled = f' class="{classes}"' if classes else ""
    length = len(run.text) * CELL_WIDTH
    return f'<text x="{x:.5g}" y="{y}" textLength="{length:.5g}"{styled}>{escape(run.text)}</text>'


def _draw_window(width: int, height: int) -> str:
    frame = f'width="{width - 1}" height="{height - 1}" rx="8" fill="var(--bg)" stroke="var(--edge)"'
    bar = f"M.5 {BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5}a8 8 0 0 1 8 8V{BAR}Z"
    dots = "".join(f'<circle cx="{18 + 16 * n}" cy="15" r="5" fill="var(--edge)"/>' for n in range(3))
    return f'<rect x=".5" y=".5" {frame}/><path d="{bar}" fill="var(--bar)" stroke="var(--edge)"/>{dots}'
