"""What definitions cost a model: tool by tool, and beside what the full set would."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, cell, count, grid, sentence, stack, warnings

Answer = Mapping[str, Any]

FOUND: Final = Text("mode find: clients see three tools, which find and call these")


def render_price(answer: Answer) -> RenderableType:
    """The dearest first; or why there is nothing to pay for."""
    prices: Mapping[str, int] = answer["prices"]
    table = grid("TOOL", "TOKENS", "SHARE")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, tokens in sorted(prices.items(), key=lambda item: (-item[1], item[0])):
        share = f"{tokens / max(answer['tokens'], 1):.0%}"
        table.add_row(cell(name, "bold"), cell(f"{tokens:,}"), cell(share, DIM))
    refusal = answer["refusal"]
    return stack(
        sentence(Text("refused: ", style=BAD), cell(refusal["message"])) if refusal else None,
        table if prices else None,
        render_sum(answer, tools=len(prices)),
        warnings(answer["warnings"]),
    )


def render_sum(answer: Answer, *, tools: int) -> RenderableType:
    """How much of all there is a URL shows, and how it is shown there."""
    return Group(
        sentence(
            Text(count(tools, "tool"), style="bold"), f" of {answer['registered_tools']:,}, {saving(answer)}"
        ),
        sentence("at ", cell(answer["url"], "bold")),
        *([FOUND] if answer["mode"] == "find" else []),
    )


def saving(answer: Answer) -> str:
    """`420 of 9,000 tokens, 95% less`: a scope beside all there is."""
    seen, registered = answer["tokens"], answer["registered_tokens"]
    less = f", {1 - seen / registered:.0%} less" if 0 < seen < registered else ""
    return f"{seen:,} of {registered:,} tokens{less}"
