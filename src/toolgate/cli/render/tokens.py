"""Tokens by task and by day, beside what all tools would have cost."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import DIM, OK, cell, count, grid, sentence, stack

Answer = Mapping[str, Any]
_NUMBERS: Final = ("LISTS", "DEFINITIONS", "SAVED", "CALLS", "RESULTS")
_LATE: Final = "; the last minute comes in with the next"


def render_tasks(answer: Answer) -> RenderableType:
    """A line for each task, the costliest first."""
    return _render(answer, "TASK", [(one["task_id"] or "(none)", one) for one in answer["tasks"]])


def render_days(answer: Answer) -> RenderableType:
    """A line for each day."""
    return _render(answer, "DAY (UTC)", [(one["day"], one) for one in answer["days"]])


def _render(answer: Answer, what: str, rows: list[tuple[str, Answer]]) -> RenderableType:
    if not rows:
        return sentence(
            f"nothing was listed or called from {answer['since']} to {answer['until']}",
            Text(_LATE, style=DIM),
        )
    table = grid(what, *_NUMBERS, flexible={what})
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in rows:
        table.add_row(
            cell(name, "bold"),
            cell(f"{one['lists']:,}"),
            cell(f"{one['definition_tokens']:,}"),
            cell(f"{one['saved_tokens']:,}", OK if one["saved_tokens"] > 0 else ""),
            cell(f"{one['calls']:,}"),
            cell(f"{one['result_tokens']:,}"),
        )
    return stack(table, _summary(answer))


def _summary(answer: Answer) -> Text:
    """`6 lists cost 420 tokens of 9,000: 95% less`, and from when to when."""
    total = answer["total"]
    cost, full = total["definition_tokens"], total["full_tokens"]
    less = f", {1 - cost / full:.0%} less" if 0 < cost < full else ""
    return sentence(
        Text(count(total["lists"], "list"), style="bold"),
        f" cost {cost:,} of {full:,} tokens{less}; results {total['result_tokens']:,}",
        Text(f"\n{answer['since']} to {answer['until']}, by estimate{_LATE}", style=DIM),
    )
