"""What lists and results cost models, by task and day: added up as it comes in, each event once.

What was used, by whom: calls that were let through, counted by tool; and how far back that is known.

How long calls took, in classes each a tenth above the one before, whose counts can be added up.

What is asked of the tables of the index, and how events become rows: the same on every engine.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    case,
    delete,
    distinct,
    func,
    insert,
    select,
    tuple_,
    update,
)

from toolgate.audit.events import (
    ApprovalRecorded,
    CallRecorded,
    CallStarted,
    InvocationEnded,
    SessionEnded,
    TokensCounted,
)
from toolgate.audit.index.tables import (
    BODIES,
    EVENTS,
    HEAD,
    KEYS,
    LOGS,
    MAX_KEY_CHARS,
    TOKENS,
    WENT_WRONG,
    EventFilter,
    EventPosition,
    IndexedEvent,
)
from toolgate.audit.log.lines import AuditLine, LineBatch, decode_body, encode_body

DAY_MS: Final = 24 * 3_600_000
MAX_TASKS: Final = 1_000
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
    costliest = tasks.order_by(cost.desc(), TOKENS.c.task_id).limit(MAX_TASKS)
    return TokenReport(
        {day: _sums(found) for day, *found in connection.execute(days.order_by(TOKENS.c.day))},
        {name: _sums(found) for name, *found in connection.execute(costliest)},
    )


def _sums(found: Sequence[Any]) -> TokenSums:
    return TokenSums(*map(int, found))  # PostgreSQL has decimals here


def prune_tokens(connection: Connection, *, before_ms: int) -> None:
    """Drop the days that ended before that."""
    connection.execute(delete(TOKENS).where(TOKENS.c.day < before_ms // DAY_MS))


MAX_USES: Final = 100_000
"""Tools by holder that are counted at once: more than there can be in any registry that works."""

UseColumn = Literal["task_id", "principal"]


class ToolUse(NamedTuple):
    """One tool, prompt or resource that one holder used."""

    holder: str
    """The task or the principal; empty: a caller without a task."""
    server_id: str
    tool: str
    calls: int
    """Since the time that is asked about."""
    last_ms: int
    """When it was used last, as far back as anything is known."""


class IndexExtent(NamedTuple):
    """What the index knows of a span of time."""

    begins_ms: int | None
    """Of the oldest event of all. None: there is none."""
    days: int
    """Days of the span that it could know of."""
    silent_days: int
    """Those of them on which nothing at all is written down."""


def read_uses(
    connection: Connection, *, by: UseColumn, since_ms: int, holder: str | None = None
) -> Sequence[ToolUse]:
    """Each tool that was called and not denied, whatever came of it. Of one `holder`, or of all."""
    who = EVENTS.c[by]
    calls = [EVENTS.c.type == "call", EVENTS.c.outcome != "denied", EVENTS.c.server_id.is_not(None)]
    if holder is not None:
        calls.append(who == holder if holder else who.is_(None))
    recent = func.sum(case((EVENTS.c.at_ms >= since_ms, 1), else_=0))
    key = (who, EVENTS.c.server_id, EVENTS.c.tool)
    query = select(*key, recent, func.max(EVENTS.c.at_ms)).where(*calls).group_by(*key)
    return [
        ToolUse(found or "", server_id, tool or "", int(many), last_ms)
        for found, server_id, tool, many, last_ms in connection.execute(query.limit(MAX_USES))
    ]


def read_extent(connection: Connection, *, since_ms: int, until_ms: int) -> IndexExtent:
    """What is known of the time from `since_ms` up to `until_ms`."""
    begins_ms = connection.execute(select(func.min(EVENTS.c.at_ms))).scalar_one()
    if begins_ms is None:
        return IndexExtent(None, 0, 0)
    first, last = max(since_ms, begins_ms) // DAY_MS, until_ms // DAY_MS
    day = EVENTS.c.at_ms // DAY_MS
    spoken = select(func.count(distinct(day))).where(
        EVENTS.c.at_ms >= first * DAY_MS, EVENTS.c.at_ms < (last + 1) * DAY_MS
    )
    days = max(0, last - first + 1)
    return IndexExtent(begins_ms, days, days - int(connection.execute(spoken).scalar_one()))


_STEP: Final = math.log(1.1)


def classify_speed(duration_us: int) -> int:
    """The class of a duration."""
    return math.ceil(math.log(max(1, duration_us)) / _STEP)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """What `share` of the calls took at most, within 5 %. `counts`: class to how many, at least one."""
    rank, seen = share * sum(counts.values()), 0
    for speed in sorted(counts):
        seen += counts[speed]
        if seen >= rank:
            return _middle_ms(speed)
    raise AssertionError("there are counts")


def _middle_ms(speed: int) -> float:
    return round(math.exp((speed - 0.5) * _STEP) / 1000, 3) if speed else 0.001


MAX_AROUND: Final = 100
"""Events of a story before the one that is asked for, and after it."""
NEAR_MS: Final = 10 * 60_000
"""Clients number their requests from 1 on, again and again: one number much later is another request."""

_NOT_LISTED: Final = (CallStarted, TokensCounted)
"""That a call began is for the log alone: its end comes as well. Tokens are added up."""
_KEYS_OF_CALL: Final = attrgetter(*KEYS, "session", "layer", "rule", "profile")
_BY_TIME: Final = (EVENTS.c.at_ms, EVENTS.c.position)
_NEWEST_FIRST: Final = (EVENTS.c.at_ms.desc(), EVENTS.c.position.desc())


class EventBatch(NamedTuple):
    """What came in, and the position up to which it is all there is."""

    events: Sequence[IndexedEvent]
    position: int


def read_taken(connection: Connection, log: str) -> int:
    """The number of the newest event of a log that was taken in."""
    taken = connection.execute(select(LOGS.c.taken).where(LOGS.c.log == log)).scalar_one_or_none()
    return 0 if taken is None else int(taken)


def has_taken(connection: Connection, log: str, first_seq: int, last_seq: int) -> bool:
    """Whether an event of a log with one of these numbers is here."""
    numbers = EVENTS.c.seq.between(first_seq, last_seq)
    return (
        connection.execute(select(EVENTS.c.seq).where(EVENTS.c.log == log, numbers).limit(1)).first()
        is not None
    )


def read_newest(connection: Connection) -> int:
    """The newest position."""
    position: int = connection.execute(select(HEAD.c.position)).scalar_one()
    return position


def insert_batch(connection: Connection, *, node: str, log: str, batch: LineBatch, now_ms: int) -> int:
    """Add those of the batch that are new, each once; what is taken by now."""
    position: int = connection.execute(select(HEAD.c.position).with_for_update()).scalar_one()
    taken = read_taken(connection, log)
    if taken < batch.after or batch.upto <= taken:
        return taken
    new = [line for line in batch.lines if line.seq > taken]
    add_tokens(connection, (line.event for line in new if isinstance(line.event, TokensCounted)))
    rows, bodies = [], []
    for line in new:
        if not isinstance(line.event, _NOT_LISTED):
            position += 1
            rows.append((position, node, log, *_row(line)))
            bodies.append((position, encode_body(line.event)))
    if rows:
        _insert(connection, EVENTS, rows)
        _insert(connection, BODIES, bodies)
        connection.execute(update(HEAD).values(position=position))
    known = {"taken": batch.upto, "seen_ms": now_ms}
    if connection.execute(update(LOGS).where(LOGS.c.log == log).values(known)).rowcount == 0:
        connection.execute(insert(LOGS), {"log": log, "node": node} | known)
    return batch.upto


def _insert(connection: Connection, table: Table, rows: list[tuple[Any, ...]]) -> None:
    """Whole rows, in the order of the columns. By the driver: each call of a tool comes through here."""
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    names, marks = ", ".join(table.columns.keys()), ", ".join([mark] * len(table.columns))
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)  # noqa: S608 (our own names)


def _row(line: AuditLine) -> tuple[Any, ...]:
    event, session, speed = line.event, "", None
    if isinstance(event, CallRecorded):
        keys = _KEYS_OF_CALL(event)
        speed = None if event.outcome == "denied" else classify_speed(event.duration_us)
    else:
        if isinstance(event, InvocationEnded):
            session = event.invocation_id
        elif isinstance(event, ApprovalRecorded):
            session = event.approval_id
        elif isinstance(event, SessionEnded):
            session = event.session
        keys = (*(getattr(event, name, "") for name in KEYS), session, "", "", getattr(event, "profile", ""))
    *shown, profile = _make_columns(keys)
    return (line.seq, event.at_ms, event.__struct_config__.tag, *shown, speed, profile)


def _make_columns(keys: tuple[str, ...]) -> Iterable[str | None]:
    """As columns have them. Most are short and plain, which is seen at one look at all of them."""
    text = "".join(keys)
    is_plain = len(text) <= MAX_KEY_CHARS and "\0" not in text
    return [key or None for key in keys] if is_plain else map(_make_column, keys)


def _make_column(value: str) -> str | None:
    if len(value) > MAX_KEY_CHARS:
        value = value[:MAX_KEY_CHARS]
    # PostgreSQL takes no NUL, and a caller may well send one.
    return (value.replace("\0", "\ufffd") if "\0" in value else value) or None


def build_conditions(asked: EventFilter) -> list[ColumnElement[bool]]:
    """What a row must be like."""
    found = [
        EVENTS.c[name] == value if value or name == "node" else EVENTS.c[name].is_(None)
        for name, value in asked.equals.items()
    ]
    if asked.equals.get("outcome", "ok") != "ok":
        found.append(WENT_WRONG)
    if asked.since_ms is not None:
        found.append(EVENTS.c.at_ms >= asked.since_ms)
    if asked.until_ms is not None:
        found.append(EVENTS.c.at_ms < asked.until_ms)
    return found


def read_page(
    connection: Connection, asked: EventFilter, before: EventPosition | None, limit: int
) -> Sequence[IndexedEvent]:
    """The newest by time, or those before a place."""
    query = select(EVENTS).where(*build_conditions(asked))
    if before is not None:
        query = query.where(tuple_(*_BY_TIME) < before)
    return _read_events(connection, query.order_by(*_NEWEST_FIRST).limit(limit))


def read_after(connection: Connection, asked: EventFilter, after: int, limit: int) -> EventBatch:
    """Those that came in after a position, in that order."""
    newest = read_newest(connection)
    if newest <= after:
        # Before it where the index was made anew: from there on nothing is missed.
        return EventBatch((), newest)
    new = EVENTS.c.position > after, EVENTS.c.position <= newest
    query = select(EVENTS).where(*new, *build_conditions(asked))
    found = _read_events(connection, query.order_by(EVENTS.c.position).limit(limit))
    return EventBatch(found, found[-1].position if len(found) == limit else newest)


def read_one(connection: Connection, log: str, seq: int) -> IndexedEvent | None:
    """The event of that name."""
    found = _read_events(connection, select(EVENTS).where(EVENTS.c.log == log, EVENTS.c.seq == seq))
    return found[0] if found else None


def read_around(connection: Connection, kept: IndexedEvent) -> Sequence[IndexedEvent]:
    """The others of its story, in order."""
    row = connection.execute(select(EVENTS).where(EVENTS.c.position == kept.position)).one_or_none()
    if row is None or (row.session is None and row.request_id is None):
        return ()
    if row.session is not None:
        story = [EVENTS.c.session == row.session]
    else:
        story = [EVENTS.c.request_id == row.request_id, EVENTS.c.principal == row.principal]
        story.append(EVENTS.c.at_ms.between(row.at_ms - NEAR_MS, row.at_ms + NEAR_MS))
    before = select(EVENTS).where(*story, tuple_(*_BY_TIME) < kept.place)
    after = select(EVENTS).where(*story, tuple_(*_BY_TIME) > kept.place)
    earlier = _read_events(connection, before.order_by(*_NEWEST_FIRST).limit(MAX_AROUND))
    return (*reversed(earlier), *_read_events(connection, after.order_by(*_BY_TIME).limit(MAX_AROUND)))


def _read_events(connection: Connection, query: Select[Any]) -> Sequence[IndexedEvent]:
    """The events of these rows, in their order. What they say is looked up for them alone."""
    rows = connection.execute(query).all()
    said = select(BODIES).where(BODIES.c.position.in_([row.position for row in rows]))
    bodies = {row.position: row.body for row in connection.execute(said)}
    return [
        IndexedEvent(row.position, row.node, row.log, row.seq, decode_body(bodies[row.position]))
        for row in rows
    ]


def prune(connection: Connection, *, before_ms: int, keep: int, step: int) -> int:
    """Drop up to `step` events that are too old, or too many for `keep`; how many it were.

    A log of which nothing came for as long is forgotten: were it sent again, all of it would be too old.
    """
    newest = connection.execute(select(HEAD.c.position).with_for_update()).scalar_one()
    oldest = select(EVENTS.c.position).where(EVENTS.c.at_ms < before_ms).order_by(EVENTS.c.at_ms).limit(step)
    surplus = select(EVENTS.c.position).where(EVENTS.c.position <= newest - keep).limit(step)
    positions = [
        *connection.execute(oldest).scalars(),
        *connection.execute(surplus.order_by(EVENTS.c.position)).scalars(),
    ]
    dropped = sorted(set(positions))[:step]
    for table in (EVENTS, BODIES):
        connection.execute(delete(table).where(table.c.position.in_(dropped)))
    prune_tokens(connection, before_ms=before_ms)
    connection.execute(delete(LOGS).where(LOGS.c.seen_ms < before_ms))
    return len(dropped)
