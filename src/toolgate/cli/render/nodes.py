"""Nodes, and servers as each node sees them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, grid

Answer = Mapping[str, Any]


def render_nodes(answer: Answer) -> RenderableType:
    """One line a node. One that is behind the registry is marked."""
    nodes: Sequence[Answer] = answer["nodes"]
    if not nodes:
        return Text("no node has reported yet: start one with `toolgate node --control HOST:PORT`")
    table = grid("NODE", "STATE", "REVISION", "REPORTED", "SERVERS", "VERSION", "AT", flexible={"AT"})
    table.columns[2].justify = table.columns[4].justify = "right"
    for node in nodes:
        table.add_row(
            cell(node["node_id"], "bold"),
            _state(node),
            cell(f"{node['revision']:,}", "" if node["is_current"] else WARN),
            cell(f"{node['age_s']:.0f} s ago"),
            cell(node["servers"]),
            cell(node["version"], DIM),
            cell(node["url"]),
        )
    return table


def _state(node: Answer) -> Text:
    if node["is_lost"]:
        return cell("lost", BAD)
    return cell("degraded", WARN) if node["is_degraded"] else cell("follows", OK)
