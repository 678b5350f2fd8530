"""What tools cost models: definitions and results in tokens, by day and by task."""

from datetime import UTC, datetime
from typing import Any, Final

from toolgate.audit.index.statements import DAY_MS, SUMS, TokenSums
from toolgate.errors import NotFound
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get

DAYS: Final = 7
MAX_DAYS: Final = 366


class TokensShown(ResponseShape, frozen=True, kw_only=True):
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


class TokensAnswer(ResponseShape, frozen=True, kw_only=True):
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


@get(
    "/admin/api/tokens",
    "viewer",
    "Add up tokens",
    TokensAnswer,
    query=(
        Parameter(
            "days", f"How many days, today included: 1 to {MAX_DAYS}, {DAYS} by default.", form="number"
        ),
        Parameter("task", "Only this task. Empty: only callers without one."),
    ),
    errors=(NotFound,),
)
async def show_tokens(control: Control, call: RestCall[None]) -> RestResponse:
    """What lists of tools and results of calls cost models, and what smaller lists have saved.

    All are estimates, good for comparing. Nodes tell once a minute, so the newest may be missing.
    """
    days = call.count("days", default=DAYS, most=MAX_DAYS)
    today = control.clock_ms() // DAY_MS
    since = max(0, today - days + 1)
    found = await control.audit_index.tokens(since_ms=since * DAY_MS, task_id=call.query.get("task"))
    total = TokenSums(*(sum(getattr(day, name) for day in found.days.values()) for name in SUMS))
    return RestResponse(
        TokensAnswer(
            since=_format_day(since),
            until=_format_day(today),
            days=[
                TokensOfDay(day=_format_day(day), **_encode_sums(sums)) for day, sums in found.days.items()
            ],
            tasks=[
                TokensOfTask(task_id=task_id, **_encode_sums(sums)) for task_id, sums in found.tasks.items()
            ],
            total=TokensShown(**_encode_sums(total)),
        )
    )


def _encode_sums(sums: TokenSums) -> dict[str, int]:
    return sums._asdict() | {"saved_tokens": sums.full_tokens - sums.definition_tokens}


def _format_day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (show_tokens,)
