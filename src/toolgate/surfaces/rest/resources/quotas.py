"""Budgets over time: who has which, and what is used of them."""

from typing import Any, Final

from toolgate.govern.budgets import BudgetUse, list_uses
from toolgate.govern.control import Control
from toolgate.model.quotas import BudgetName, HolderKind
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint
from toolgate.surfaces.rest.shapes import Shown


class BudgetUsed(Shown, frozen=True, kw_only=True):
    """One budget of a key or a task, in the minute or day that it is."""

    holder_kind: HolderKind
    holder_id: str
    budget: BudgetName
    limit: int
    used: int
    """Also what nodes were granted and have not used yet, which is little."""
    resets_at_ms: int
    """When the next minute or day begins, by UTC."""


class BudgetsAnswer(Shown, frozen=True, kw_only=True):
    """A page of them, sorted by holder."""

    budgets: list[BudgetUsed]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


async def show_budgets(control: Control, call: Call[None]) -> Answer:
    """Every budget over time that a key or a task has, and what is used of it at all nodes together."""
    uses, more = parse_page(call.query).cut(await list_uses(control), _id_of)
    return Answer(BudgetsAnswer(budgets=[_show(one) for one in uses], next_cursor=more))


def _id_of(use: BudgetUse) -> str:
    return " ".join((*use.holder, use.budget))  # no id has a space, and it sorts before all they have


def _show(use: BudgetUse) -> BudgetUsed:
    return BudgetUsed(
        holder_kind=use.holder.kind,
        holder_id=use.holder.id,
        budget=use.budget,
        limit=use.limit,
        used=use.used,
        resets_at_ms=use.resets_at_ms,
    )


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/budgets",
        role="viewer",
        summary="Show budgets over time, and what is used of them",
        handler=show_budgets,
        query=PAGING,
        answer=BudgetsAnswer,
    ),
)
