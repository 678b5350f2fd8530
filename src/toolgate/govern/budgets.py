"""What is left of budgets over time: those that records set, beside what is counted of them."""

from collections.abc import Iterator
from typing import NamedTuple

from toolgate.govern.control import Control
from toolgate.model.quotas import Allowance, BudgetName, Holder
from toolgate.model.snapshot import Snapshot
from toolgate.policy.allowances import limits_of, window_at
from toolgate.policy.layers import parse_task_policy


class BudgetUse(NamedTuple):
    """One budget of one holder, in its newest window."""

    holder: Holder
    budget: BudgetName
    limit: int
    used: int
    """With what nodes were granted and have not used yet."""
    resets_at_ms: int


async def list_uses(control: Control) -> list[BudgetUse]:
    """Every budget that is set, sorted by holder and budget."""
    counts = {(one.holder, one.budget): one.used for one in await control.store.spending.usage()}
    now_ms = control.clock_ms()
    return sorted(
        BudgetUse(
            allowance.holder,
            budget,
            limit,
            counts.get((allowance.holder, budget), 0),
            window_at(budget, now_ms).ends_ms,
        )
        for allowance in _allowances(control.gateway.snapshot)
        for budget, limit in limits_of(allowance.budgets).items()
    )


def _allowances(snapshot: Snapshot) -> Iterator[Allowance]:
    for key in snapshot.keys.values():
        if key.budgets is not None:
            yield Allowance(Holder("key", key.key_id), key.budgets)
    for task in snapshot.tasks.values():
        budgets = parse_task_policy(task).budgets if "mcp.budgets" in task.config else None
        if budgets is not None:
            yield Allowance(Holder("task", task.task_id), budgets)
