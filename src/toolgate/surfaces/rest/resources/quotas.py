"""Budgets over time: who has which, and what is used of them."""

from typing import Any, Final

from toolgate.govern.audit import QuotaUsage, list_quota_usage
from toolgate.govern.control import Control
from toolgate.model.quotas import HolderKind, QuotaName
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get


class BudgetUsed(ResponseShape, frozen=True, kw_only=True):
    """One budget of a key or a task, in the minute or day that it is."""

    holder_kind: HolderKind
    holder_id: str
    budget: QuotaName
    limit: int
    used: int
    """Also what nodes were granted and have not used yet, which is little."""
    resets_at_ms: int
    """When the next minute or day begins, by UTC."""


class BudgetsAnswer(ResponseShape, frozen=True, kw_only=True):
    """A page of them, sorted by holder."""

    budgets: list[BudgetUsed]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


@get(
    "/admin/api/budgets",
    "viewer",
    "Show budgets over time, and what is used of them",
    BudgetsAnswer,
    query=PAGING,
)
async def list_quotas(control: Control, call: RestCall[None]) -> RestResponse:
    """Every budget over time that a key or a task has, and what is used of it at all nodes together."""
    uses, more = parse_page(call).cut(await list_quota_usage(control), _sort_key)
    return RestResponse(BudgetsAnswer(budgets=[_show_use(one) for one in uses], next_cursor=more))


def _sort_key(use: QuotaUsage) -> str:
    return " ".join((*use.holder, use.budget))  # no id has a space, and it sorts before all they have


def _show_use(use: QuotaUsage) -> BudgetUsed:
    return BudgetUsed(
        holder_kind=use.holder.kind,
        holder_id=use.holder.id,
        budget=use.budget,
        limit=use.limit,
        used=use.used,
        resets_at_ms=use.resets_at_ms,
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (list_quotas,)
