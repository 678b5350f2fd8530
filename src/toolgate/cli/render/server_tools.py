"""What one server offers as it is exposed, and why some of it is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, cell, count, grid, sentence, stack

Answer = Mapping[str, Any]


def render_server_tools(answer: Answer) -> RenderableType:
    """One line a tool: its name on the MCP door, what it costs, and what decided about it."""
    tools: Sequence[Answer] = answer["tools"]
    others: Sequence[Answer] = answer.get("others") or ()
    if not tools and not others:
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
    return stack(
        table if tools else None,
        Text(f"{allowed} of {count(len(tools), 'tool')} offered", style=DIM),
        _others(others),
    )


def _others(others: Sequence[Answer]) -> RenderableType | None:
    """Prompts and resources, as a pattern names them."""
    if not others:
        return None
    table = grid("", "PROMPT OR RESOURCE", "DECIDED BY", flexible={"PROMPT OR RESOURCE", "DECIDED BY"})
    for one in others:
        mark = Text("✓", style=OK) if one["allowed"] else Text("✗", style=BAD)
        table.add_row(mark, cell(one["tool"], "bold" if one["allowed"] else ""), _decision(one))
    return table


def _decision(tool: Answer) -> Text:
    if tool["allowed"]:
        return cell(tool["rule"], DIM)
    why = sentence(cell(tool["layer"], "bold"), ": ", cell(tool["reason"]))
    return sentence(why, " ", cell(tool["rule"], DIM)) if tool["rule"] else why
