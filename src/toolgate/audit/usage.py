"""What was used, by whom: calls that were let through, counted by tool; and how far back that is known."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, case, distinct, func, select

from toolgate.audit.index.tables import EVENTS
from toolgate.audit.tokens import DAY_MS

MAX_USES: Final = 100_000
"""Tools by holder that are counted at once: more than there can be in any registry that works."""

Holder = Literal["task_id", "principal"]


class Use(NamedTuple):
    """One tool, prompt or resource that one holder used."""

    holder: str
    """The task or the principal; empty: a caller without a task."""
    server_id: str
    tool: str
    calls: int
    """Since the time that is asked about."""
    last_ms: int
    """When it was used last, as far back as anything is known."""


class Extent(NamedTuple):
    """What the index knows of a span of time."""

    begins_ms: int | None
    """Of the oldest event of all. None: there is none."""
    days: int
    """Days of the span that it could know of."""
    silent_days: int
    """Those of them on which nothing at all is written down."""


def read_uses(
    connection: Connection, *, by: Holder, since_ms: int, holder: str | None = None
) -> Sequence[Use]:
    """Each tool that was called and not denied, whatever came of it. Of one `holder`, or of all."""
    who = EVENTS.c[by]
    calls = [EVENTS.c.type == "call", EVENTS.c.outcome != "denied", EVENTS.c.server_id.is_not(None)]
    if holder is not None:
        calls.append(who == holder if holder else who.is_(None))
    recent = func.sum(case((EVENTS.c.at_ms >= since_ms, 1), else_=0))
    key = (who, EVENTS.c.server_id, EVENTS.c.tool)
    query = select(*key, recent, func.max(EVENTS.c.at_ms)).where(*calls).group_by(*key)
    return [
        Use(found or "", server_id, tool or "", int(many), last_ms)
        for found, server_id, tool, many, last_ms in connection.execute(query.limit(MAX_USES))
    ]


def read_extent(connection: Connection, *, since_ms: int, until_ms: int) -> Extent:
    """What is known of the time from `since_ms` up to `until_ms`."""
    begins_ms = connection.execute(select(func.min(EVENTS.c.at_ms))).scalar_one()
    if begins_ms is None:
        return Extent(None, 0, 0)
    first, last = max(since_ms, begins_ms) // DAY_MS, until_ms // DAY_MS
    day = EVENTS.c.at_ms // DAY_MS
    spoken = select(func.count(distinct(day))).where(
        EVENTS.c.at_ms >= first * DAY_MS, EVENTS.c.at_ms < (last + 1) * DAY_MS
    )
    days = max(0, last - first + 1)
    return Extent(begins_ms, days, days - int(connection.execute(spoken).scalar_one()))
