"""What tools cost models: definitions and results in tokens, by day and by task."""

from datetime import UTC, datetime
from typing import Any, Final

from toolgate.audit.tokens import DAY_MS, SUMS, TokenSums
from toolgate.errors import NotFound
from toolgate.govern.audit import index_of
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import parse_count
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.shapes import Shown

DAYS: Final = 7
MAX_DAYS: Final = 366


class TokensShown(Shown, frozen=True, kw_only=True):
    """What lists and results cost, by estimate."""

    lists: int
    """Lists of tools that clients and models were given."""
    definition_tokens: int
    """What the definitions in them cost."""
    full_tokens: int
    """What the definitions of all registered tools would have cost, each time."""
    saved_tokens: int
    """The difference; negative where the tools that find others cost more than all there are."""
    calls: int
    """Those that had a result."""
    result_tokens: int


class TokensOfDay(TokensShown, frozen=True, kw_only=True):
    """What one day cost."""

    day: str
    """In UTC: `2026-01-31`."""


class TokensOfTask(TokensShown, frozen=True, kw_only=True):
    """What one task cost."""

    task_id: str
    """Empty: callers without a task."""


class TokensAnswer(Shown, frozen=True, kw_only=True):
    """What some days cost, by day and by task."""

    since: str
    """The first of the days, in UTC."""
    until: str
    """The last: today, which is not over."""
    days: list[TokensOfDay]
    """In order; those without a list or a call are left out."""
    tasks: list[TokensOfTask]
    """The 1,000 with the most tokens, in that order."""
    total: TokensShown


async def show_tokens(control: Control, call: Call[None]) -> Answer:
    """What lists of tools and results of calls cost models, and what smaller lists have saved.

    All are estimates, good for comparing. Nodes tell once a minute, so the newest may be missing.
    """
    days = parse_count(call.query, "days", unless=DAYS, most=MAX_DAYS)
    today = control.clock_ms() // DAY_MS
    since = max(0, today - days + 1)
    found = await index_of(control).tokens(since_ms=since * DAY_MS, task_id=call.query.get("task"))
    total = TokenSums(*(sum(getattr(day, name) for day in found.days.values()) for name in SUMS))
    return Answer(
        TokensAnswer(
            since=_date(since),
            until=_date(today),
            days=[TokensOfDay(day=_date(day), **_sums(sums)) for day, sums in found.days.items()],
            tasks=[TokensOfTask(task_id=task_id, **_sums(sums)) for task_id, sums in found.tasks.items()],
            total=TokensShown(**_sums(total)),
        )
    )


def _sums(sums: TokenSums) -> dict[str, int]:
    return sums._asdict() | {"saved_tokens": sums.full_tokens - sums.definition_tokens}


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/tokens",
        role="viewer",
        summary="Add up tokens",
        handler=show_tokens,
        query=(
            Parameter(
                "days", f"How many days, today included: 1 to {MAX_DAYS}, {DAYS} by default.", form="number"
            ),
            Parameter("task", "Only this task. Empty: only callers without one."),
        ),
        answer=TokensAnswer,
        errors=(NotFound,),
    ),
)
