"""Budgets over time: how much of each is used, and when it resets."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, grid, sentence, stack

Answer = Mapping[str, Any]
_MOST_USED: Final = 0.8
_WORDS: Final = {
    "calls_per_minute": "calls/minute",
    "calls_per_day": "calls/day",
    "tokens_per_day": "tokens/day",
}


def render_budgets(budgets: Sequence[Answer], now_s: float) -> RenderableType:
    """One line a budget."""
    if not budgets:
        return Text("no budgets yet: set one with `toolgate keys add NAME --calls-per-minute N`")
    table = grid("OF", "BUDGET", "USED", "LIMIT", "RESETS IN", flexible={"OF"})
    for column in table.columns[2:4]:
        column.justify = "right"
    for one in budgets:
        table.add_row(
            cell(f"{one['holder_kind']} {one['holder_id']}", "bold"),
            cell(name_budget(one["budget"])),
            cell(f"{one['used']:,}", _style(one)),
            cell(f"{one['limit']:,}"),
            cell(_left(one["resets_at_ms"] / 1e3 - now_s), DIM),
        )
    return stack(table, Text("Calls that were granted to a node count as used.", style=DIM))


def render_key_budgets(key: Answer) -> RenderableType:
    """What a key may use from now on."""
    limits = [f"{limit:,} {name_budget(name)}" for name, limit in (key.get("budgets") or {}).items() if limit]
    at_most = f"at most {', '.join(limits)}" if limits else "as much as there is"
    return sentence(Text("✓ ", style=OK), "key ", cell(key["key_id"], "bold"), f" may use {at_most}")


def name_budget(budget: str) -> str:
    """As it is shown: `calls/minute`."""
    return _WORDS.get(budget, budget)


def _style(one: Answer) -> str:
    share = one["used"] / one["limit"]
    return BAD if share >= 1 else WARN if share >= _MOST_USED else OK


def _left(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{whole} s"
