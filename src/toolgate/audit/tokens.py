"""What lists and results cost models, by task and day: added up as it comes in, each event once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from toolgate.audit.events import TokensCounted
from toolgate.audit.index.tables import TOKENS
from toolgate.audit.queries import MAX_KEY_CHARS

DAY_MS: Final = 24 * 3_600_000
MOST_TASKS: Final = 1_000
"""Tasks that are named."""


class TokenSums(NamedTuple):
    """What the lists and results of some time cost."""

    lists: int
    definition_tokens: int
    full_tokens: int
    calls: int
    result_tokens: int


class TokenReport(NamedTuple):
    """The same sums, once by day and once by task."""

    days: Mapping[int, TokenSums]
    """Days since 1970, in UTC, in order: those on which there was something."""
    tasks: Mapping[str, TokenSums]
    """Those with the most tokens first. Under no name: callers without a task."""


SUMS: Final = TokenSums._fields
"""Columns, and fields of events by the same name."""


def add_tokens(connection: Connection, events: Iterable[TokensCounted]) -> None:
    """Add them to their days. Only in the transaction that takes their lines in: so none counts twice."""
    days: dict[tuple[int, str], Counter[str]] = {}
    for event in events:
        task_id = event.task_id[:MAX_KEY_CHARS].replace("\0", "\ufffd")
        sums = days.setdefault((event.at_ms // DAY_MS, task_id), Counter())
        sums.update({name: getattr(event, name) for name in SUMS})
    for (day, task_id), sums in days.items():
        one = (TOKENS.c.day == day, TOKENS.c.task_id == task_id)
        more = {name: TOKENS.c[name] + sums[name] for name in SUMS}
        if connection.execute(update(TOKENS).where(*one).values(more)).rowcount == 0:
            named = {"day": day, "task_id": task_id}
            connection.execute(insert(TOKENS), named | {name: sums[name] for name in SUMS})


def read_tokens(connection: Connection, *, since_day: int, task_id: str | None) -> TokenReport:
    """From `since_day` on, of one task or of all."""
    asked = [TOKENS.c.day >= since_day]
    if task_id is not None:
        asked.append(TOKENS.c.task_id == task_id)
    sums = [func.sum(TOKENS.c[name]) for name in SUMS]
    cost = func.sum(TOKENS.c.definition_tokens + TOKENS.c.result_tokens)
    days = select(TOKENS.c.day, *sums).where(*asked).group_by(TOKENS.c.day)
    tasks = select(TOKENS.c.task_id, *sums).where(*asked).group_by(TOKENS.c.task_id)
    costliest = tasks.order_by(cost.desc(), TOKENS.c.task_id).limit(MOST_TASKS)
    return TokenReport(
        {day: _sums(found) for day, *found in connection.execute(days.order_by(TOKENS.c.day))},
        {name: _sums(found) for name, *found in connection.execute(costliest)},
    )


def _sums(found: Sequence[Any]) -> TokenSums:
    return TokenSums(*map(int, found))  # PostgreSQL has decimals here


def prune_tokens(connection: Connection, *, before_ms: int) -> None:
    """Drop the days that ended before that."""
    connection.execute(delete(TOKENS).where(TOKENS.c.day < before_ms // DAY_MS))
