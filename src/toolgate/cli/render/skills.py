"""Skills: which of their tools can be called, what they cost, and where they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, count, grid, names, sentence, stack
from toolgate.cli.render.plans import render_change_set
from toolgate.cli.render.prices import saving

Answer = Mapping[str, Any]


def render_skill(answer: Answer) -> RenderableType:
    """Each tool, callable or why not, and the price of the skill."""
    tools: Sequence[Answer] = answer["tools"]
    table = grid("TOOL", "TOKENS", "", flexible={""})
    table.columns[1].justify = "right"
    for tool in tools:
        table.add_row(
            cell(tool["name"], "bold"), cell(f"{tool['tokens']:,}" if tool["tokens"] else "-"), _state(tool)
        )
    callable_ones = sum(tool["state"] == "callable" for tool in tools)
    is_whole = callable_ones == len(tools)
    tail = sentence(
        Text("✓ " if is_whole else "✗ ", style=OK if is_whole else BAD),
        cell(answer["skill"], "bold"),
        f": {callable_ones} of {count(len(tools), 'tool')} can be called; ",
        saving(answer),
    )
    return stack(table if tools else None, tail)


def _state(tool: Answer) -> Text:
    match tool["state"]:
        case "callable":
            return Text("callable", style=OK)
        case "hidden":
            why = tool["because"]
            rule = sentence(" (", cell(why["rule"], DIM), ")") if why["rule"] else Text()
            return sentence(Text("hidden", style=BAD), " by ", cell(f"{why['layer']}: {why['reason']}"), rule)
        case "unlisted":
            return Text("not known: its server has not listed its tools yet", style=WARN)
    near = sentence("; did you mean ", names(tool["nearest"], "bold"), "?") if tool["nearest"] else Text()
    return sentence(Text("there is no such tool", style=BAD), near)


def render_url(url: str) -> RenderableType:
    """To be copied as it is: on one line, however long."""
    return stack(Text(url, no_wrap=True, overflow="ignore"))


def render_applied_skill(answer: Answer, url: str) -> RenderableType:
    """The task, and where it is."""
    return stack(render_change_set(answer), sentence("at ", cell(url, "bold")))
