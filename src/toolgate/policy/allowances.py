"""Budgets over time, decided without a clock or a count: which apply, when they open, how much is handed out.

Nodes spend what they were granted before, so that not every call asks. A grant is a small part of what is
left: the limit holds for all nodes together, and one that dies takes little with it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from toolgate.model.principals import Principal
from toolgate.model.quotas import Allowance, BudgetName, Count, Draw, Drawn, Holder, TimeBudgets
from toolgate.policy.layers import TaskPolicy

WINDOW_MS: Final[Mapping[BudgetName, int]] = {
    "calls_per_minute": 60_000,
    "calls_per_day": 86_400_000,
    "tokens_per_day": 86_400_000,
}
"""Windows follow one another without gaps from the beginning of Unix time on: UTC's minutes and days."""
MAX_GRANT: Final = 50
_PART: Final = 10
_KEY: Final = "key:"


class Window(NamedTuple):
    """One minute or day."""

    begins_ms: int
    ends_ms: int


def allowances_of(principal: Principal, task: TaskPolicy | None) -> tuple[Allowance, ...]:
    """All that a call has to have room in: the key's own, and the task's."""
    found = []
    if principal.budgets is not None:
        found.append(Allowance(Holder("key", principal.id.removeprefix(_KEY)), principal.budgets))
    if task is not None and task.budgets is not None:
        found.append(Allowance(Holder("task", task.task_id), task.budgets))
    return tuple(found)


def limits_of(budgets: TimeBudgets) -> Mapping[BudgetName, int]:
    """Those that are set."""
    limits: dict[BudgetName, int | None] = {
        "calls_per_minute": budgets.calls_per_minute,
        "calls_per_day": budgets.calls_per_day,
        "tokens_per_day": budgets.tokens_per_day,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def is_narrower(budgets: TimeBudgets | None, bounds: TimeBudgets) -> bool:
    """Whether each budget that `bounds` sets is set in `budgets`, and not larger."""
    limits = {} if budgets is None else limits_of(budgets)
    return all(limits.get(name, bound + 1) <= bound for name, bound in limits_of(bounds).items())


def window_at(budget: BudgetName, now_ms: int) -> Window:
    """The window of `budget` that `now_ms` lies in."""
    length_ms = WINDOW_MS[budget]
    begins_ms = now_ms - now_ms % length_ms
    return Window(begins_ms, begins_ms + length_ms)


def window_of(count: Count, budget: BudgetName, now_ms: int) -> Window:
    """The window that is counted in now: a clock that is put back over its beginning opens no other."""
    window = window_at(budget, now_ms)
    return window_at(budget, window.ends_ms) if count.window_ms == window.ends_ms else window


def count_at(count: Count, budget: BudgetName, now_ms: int) -> Count:
    """`count` as it stands now: nothing is used of a window that has just begun."""
    begins_ms = window_of(count, budget, now_ms).begins_ms
    return count if count.window_ms == begins_ms else Count(begins_ms)


def draw(count: Count, wanted: Draw, now_ms: int) -> tuple[Count, Drawn]:
    """What is used after `wanted` was given, and what was given."""
    begins_ms, ends_ms = window_of(count, wanted.budget, now_ms)
    used = count_at(count, wanted.budget, now_ms).used
    if wanted.budget == "tokens_per_day":
        used += wanted.spent
        amount = wanted.limit - used
    elif wanted.returned:
        used -= min(wanted.returned, used) if wanted.window_ms == begins_ms else 0
        amount = 0
    else:
        amount = grant(wanted.limit, used)
        used += amount
    return Count(begins_ms, used), Drawn(amount, begins_ms, ends_ms - now_ms)


def grant(limit: int, used: int) -> int:
    """How many calls are handed out at once: a tenth of what is left, so that the last go one by one."""
    left = max(limit - used, 0)
    return min(max(left // _PART, 1), MAX_GRANT, left)
