"""What one server offers as it is exposed, and why some of it is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, cell, count, grid, sentence, stack
from toolgate.cli.render.pins import point_to_diff

Answer = Mapping[str, Any]


def render_server_tools(answer: Answer) -> RenderableType:
    """One line a tool: its name on the MCP door, what it costs, and what decided about it."""
    tools: Sequence[Answer] = answer["tools"]
    others: Sequence[Answer] = answer.get("others") or ()
    if not tools and not others:
        return Text("no tools are known: see `toolgate servers test` for why")
    allowed = sum(one["allowed"] for one in tools)
    return stack(
        _tools(tools) if tools else None,
        Text(f"{allowed} of {count(len(tools), 'tool')} offered", style=DIM),
        _decided("PROMPT OR RESOURCE", [one for one in others if one["allowed"]]),
        _decided("HELD BACK", [one for one in (*tools, *others) if not one["allowed"]]),
        point_to_diff([answer["server_id"]])
        if any(one["reason"] == "quarantined" for one in tools)
        else None,
    )


def _tools(tools: Sequence[Answer]) -> RenderableType:
    table = grid("", "TOOL", "TOKENS", "DIGEST", "DECIDED BY", flexible={"DECIDED BY"})
    table.columns[2].justify = "right"
    for one in tools:
        table.add_row(
            _mark(one),
            cell(one["name"], "bold" if one["allowed"] else ""),
            cell(f"{one['tokens']:,}" if one["digest"] else None),
            cell((one["digest"] or "")[:12], DIM),
            cell(one["rule"] if one["allowed"] else "see below", DIM),
        )
    return table


def _decided(title: str, decisions: Sequence[Answer]) -> RenderableType | None:
    """By the names that patterns have for them, with room for what decided."""
    if not decisions:
        return None
    table = grid("", title, "DECIDED BY", flexible={title, "DECIDED BY"})
    for one in decisions:
        table.add_row(_mark(one), cell(one["tool"], "bold" if one["allowed"] else ""), _decision(one))
    return table


def _mark(one: Answer) -> Text:
    return Text("✓", style=OK) if one["allowed"] else Text("✗", style=BAD)


def _decision(one: Answer) -> Text:
    if one["allowed"]:
        return cell(one["rule"], DIM)
    why = sentence(cell(one["layer"], "bold"), ": ", cell(one["reason"]))
    return Text("\n").join([why, cell(one["rule"], DIM)]) if one["rule"] else why
