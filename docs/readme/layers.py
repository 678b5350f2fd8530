"""Draws the four layers of a scope, with the number of tools that each lets through."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 760
ROW: Final = 46
TOP: Final = 12
BAR_X: Final = 250
BAR_WIDTH: Final = 290
"""Of all tools. What a layer hides is the grey rest of its bar."""
_STYLE: Final = """\
svg{--fg:#1f2328;--dim:#656d76;--bar:#3b5bdb;--gone:#d0d7de}
@media(prefers-color-scheme:dark){svg{--fg:#e6edf3;--dim:#9198a1;--bar:#748ffc;--gone:#3d444d}}
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--fg)}
.name{font-weight:600}.note{fill:var(--dim);font-size:12px}.count{font-weight:600;font-variant-numeric:tabular-nums}
"""


class Layer(NamedTuple):
    """One layer: what it is set by, how many tools reach it, and how many it lets through."""

    name: str
    note: str
    before: int
    after: int


def describe_layers(layers: Sequence[Layer]) -> str:
    """The picture in words."""
    return "Tools per layer: " + ", ".join(f"{one.name} {one.before} → {one.after}" for one in layers)


def draw_layers(layers: Sequence[Layer]) -> str:
    """The SVG: a bar for each layer, and one for the tools that remain."""
    total = layers[0].before
    height = 2 * TOP + ROW * len(layers)
    rows = "\n".join(_draw_layer(layer, TOP + ROW * index, total) for index, layer in enumerate(layers))
    title = describe_layers(layers)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n{rows}\n</svg>\n"
    )


def _draw_layer(layer: Layer, y: int, total: int) -> str:
    before, after = (f"{count * BAR_WIDTH / total:.4g}" for count in (layer.before, layer.after))
    bar = f'<rect x="{BAR_X}" y="{y + 6}" height="24" rx="3"'
    hidden = layer.before - layer.after
    words = f"hides {hidden}" if hidden else "hides nothing"
    counted = f"{layer.after} {'tool' if layer.after == 1 else 'tools'}"
    return (
        f'<text x="0" y="{y + 16}" class="name">{escape(layer.name)}</text>'
        f'<text x="0" y="{y + 33}" class="note">{escape(layer.note)}</text>'
        f'{bar} width="{before}" fill="var(--gone)"/>{bar} width="{after}" fill="var(--bar)"/>'
        f'<text x="{BAR_X + BAR_WIDTH + 20}" y="{y + 23}" class="count">{counted}</text>'
        f'<text x="{BAR_X + BAR_WIDTH + 100}" y="{y + 23}" class="note">{words}</text>'
    )
