"""Pins: what was approved, and what an approval changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, OK, WARN, cell, count, grid, indent, names, sentence, warnings

Answer = Mapping[str, Any]


def render_pins(pins: Sequence[Answer]) -> RenderableType:
    """One line a pinned server."""
    if not pins:
        return Text("no pins yet: approve a server's tools with `toolgate pins set SERVER`")
    table = grid("SERVER", "APPROVED TOOLS", flexible={"APPROVED TOOLS"})
    for pin in pins:
        table.add_row(cell(pin["server_id"], "bold"), names(sorted(pin["tools"])))
    return table


def render_pinned(
    server_id: str, before: Mapping[str, str], after: Mapping[str, str], answer: Answer
) -> RenderableType:
    """An approval, with what is new in it."""
    head = sentence(
        Text("✓ ", style=OK),
        cell(server_id, "bold"),
        f": {count(len(after), 'tool')} approved (revision {answer['revision']})",
    )
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    parts = (
        ("+", OK, after.keys() - before.keys() if before else ()),
        ("~", WARN, changed),
        ("-", BAD, before.keys() - after.keys()),
    )
    lines = [
        indent(sentence(Text(f"{sign} ", style=style), names(sorted(tools))))
        for sign, style, tools in parts
        if tools
    ]
    return Group(head, *lines, *filter(None, [warnings(answer["warnings"])]))
