"""The tools of one server as they are exposed, and why some are not."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, cell, count, grid, sentence, stack

Answer = Mapping[str, Any]


def render_server_tools(answer: Answer) -> RenderableType:
    """One line a tool: its name on the MCP door, what it costs, and what decided about it."""
    tools: Sequence[Answer] = answer["tools"]
    if not tools:
        return Text("no tools are known: see `toolgate servers test` for why")
    table = grid("", "TOOL", "TOKENS", "DIGEST", "DECIDED BY", flexible={"DECIDED BY"})
    table.columns[2].justify = "right"
    for one in tools:
        table.add_row(
            Text("✓", style=OK) if one["allowed"] else Text("✗", style=BAD),
            cell(one["name"], "bold" if one["allowed"] else ""),
            cell(f"{one['tokens']:,}" if one["digest"] else None),
            cell((one["digest"] or "")[:12], DIM),
            _decision(one),
        )
    allowed = sum(one["allowed"] for one in tools)
    return stack(table, Text(f"{allowed} of {count(len(tools), 'tool')} offered", style=DIM))


def _decision(tool: Answer) -> Text:
    if tool["allowed"]:
        return cell(tool["rule"], DIM)
    why = sentence(cell(tool["layer"], "bold"), ": ", cell(tool["reason"]))
    return sentence(why, " ", cell(tool["rule"], DIM)) if tool["rule"] else why
