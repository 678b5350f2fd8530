"""Statements on the tables of the audit index, the same on every engine: inserts, pages, tokens and uses."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from toolgate.audit import events
from toolgate.audit.events import CallRecorded, TokensCounted
from toolgate.audit.index import tables
from toolgate.audit.index.tables import BODIES, EVENTS, HEAD, KEYS, LOGS, SUMS, TOKENS, IndexedEvent
from toolgate.audit.log.files import AuditLine, LineBatch, decode_event

DAY_MS: Final = 24 * 3_600_000  # 24 hours
MAX_TASKS: Final = 1_000  # that a report names


class TokenReport(NamedTuple):
    """Token sums by day and by task."""

    days: Mapping[int, tables.TokenSums]
    """Days since 1970 in UTC, in order. Days without events are omitted."""
    tasks: Mapping[str, tables.TokenSums]
    """The largest first. The empty id: callers without a task."""


def add_tokens(connection: Connection, counts: Iterable[TokensCounted]) -> None:
    """Add counts to their days, in the transaction that inserts their lines, so that none counts twice."""
    days: dict[tuple[int, str], Counter[str]] = {}
    for event in counts:
        task_id = event.task_id[: tables.MAX_KEY_CHARS].replace("\0", "\ufffd")
        sums = days.setdefault((event.at_ms // DAY_MS, task_id), Counter())
        sums.update({name: getattr(event, name) for name in SUMS})
    for (day, task_id), sums in days.items():
        one = (TOKENS.c.day == day, TOKENS.c.task_id == task_id)
        more = {name: TOKENS.c[name] + sums[name] for name in SUMS}
        if connection.execute(sa.update(TOKENS).where(*one).values(more)).rowcount == 0:
            named = {"day": day, "task_id": task_id}
            connection.execute(insert(TOKENS), named | {name: sums[name] for name in SUMS})


def read_tokens(connection: Connection, *, since_ms: int, task_id: str | None) -> TokenReport:
    """The tokens of lists and results since that day, of one task or of all."""
    conditions = [TOKENS.c.day >= since_ms // DAY_MS]
    if task_id is not None:
        conditions.append(TOKENS.c.task_id == task_id)
    sums = [func.sum(TOKENS.c[name]) for name in SUMS]
    cost = func.sum(TOKENS.c.definition_tokens + TOKENS.c.result_tokens)
    days = select(TOKENS.c.day, *sums).where(*conditions).group_by(TOKENS.c.day)
    tasks = select(TOKENS.c.task_id, *sums).where(*conditions).group_by(TOKENS.c.task_id)
    costliest = tasks.order_by(cost.desc(), TOKENS.c.task_id).limit(MAX_TASKS)
    return TokenReport(
        {day: _sums(found) for day, *found in connection.execute(days.order_by(TOKENS.c.day))},
        {name: _sums(found) for name, *found in connection.execute(costliest)},
    )


def _sums(found: Sequence[Any]) -> tables.TokenSums:
    return tables.TokenSums(*map(int, found))  # PostgreSQL has decimals here


MAX_USES: Final = 100_000  # tools by holder that are counted at once: more than any registry has
UseColumn = Literal["task_id", "principal"]


class ToolUse(NamedTuple):
    """A tool, prompt or resource that a holder used."""

    holder: str
    """The task or the principal. Empty: a caller without a task."""
    server_id: str
    tool: str
    calls: int
    """The number of calls since the time of the query."""
    last_ms: int
    """The time of its last use in the whole index."""


class IndexExtent(NamedTuple):
    """How much of a time span the index covers."""

    begins_ms: int | None
    """The time of the oldest event; None without events."""
    days: int
    """The days of the span since the oldest event."""
    silent_days: int
    """The number of these days without any event."""


def read_uses(
    connection: Connection, by: UseColumn, *, since_ms: int, holder: str | None = None
) -> Sequence[ToolUse]:
    """Each tool that was called and not denied, with any outcome, by one `holder` or by all."""
    who = EVENTS.c[by]
    calls = [EVENTS.c.type == "call", EVENTS.c.outcome != "denied", EVENTS.c.server_id.is_not(None)]
    if holder is not None:
        calls.append(who == holder if holder else who.is_(None))
    recent = func.sum(sa.case((EVENTS.c.at_ms >= since_ms, 1), else_=0))
    key = (who, EVENTS.c.server_id, EVENTS.c.tool)
    query = select(*key, recent, func.max(EVENTS.c.at_ms)).where(*calls).group_by(*key)
    return [
        ToolUse(found or "", server_id, tool or "", int(many), last_ms)
        for found, server_id, tool, many, last_ms in connection.execute(query.limit(MAX_USES))
    ]


def read_last_use(connection: Connection, principals: Sequence[str]) -> Sequence[int | None]:
    """The time of the oldest event, then of the newest event of each principal. Each is a lookup in an index,
    however many events there are. At most 1,000 principals: each takes a column."""
    oldest, newest = func.min(EVENTS.c.at_ms), func.max(EVENTS.c.at_ms)
    last = [select(newest).where(EVENTS.c.principal == one).scalar_subquery() for one in principals]
    return tuple(connection.execute(select(select(oldest).scalar_subquery(), *last)).one())


def read_extent(connection: Connection, *, since_ms: int, until_ms: int) -> IndexExtent:
    """The coverage of the time from `since_ms` to `until_ms`."""
    begins_ms = connection.execute(select(func.min(EVENTS.c.at_ms))).scalar_one()
    if begins_ms is None:
        return IndexExtent(None, 0, 0)
    first, last = max(since_ms, begins_ms) // DAY_MS, until_ms // DAY_MS
    day = EVENTS.c.at_ms // DAY_MS
    spoken = select(func.count(sa.distinct(day))).where(
        EVENTS.c.at_ms >= first * DAY_MS, EVENTS.c.at_ms < (last + 1) * DAY_MS
    )
    days = max(0, last - first + 1)
    return IndexExtent(begins_ms, days, days - int(connection.execute(spoken).scalar_one()))


_STEP: Final = math.log(1.1)


def classify_speed(duration_us: int) -> int:
    """The class of a duration: each begins a tenth above the previous one, so counts can be added up."""
    return math.ceil(math.log(max(1, duration_us)) / _STEP)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """The duration that `share` of the calls did not exceed, within 5 %. `counts`: class to number of
    calls."""
    rank, seen = share * sum(counts.values()), 0
    for speed in sorted(counts):
        seen += counts[speed]
        if seen >= rank:
            middle_us = math.exp((speed - 0.5) * _STEP) if speed else 1
            return round(middle_us / 1000, 3)
    raise AssertionError("there are counts")


MAX_AROUND: Final = 100  # events before one of a session or request, and the same number after it
NEAR_MS: Final = 10 * 60_000
"""Clients number requests from 1 in every session: the same number much later is another request."""
_NOT_LISTED: Final = (events.CallStarted, TokensCounted)
"""Starts of calls stay in the log, because the end repeats all their members. Token counts are added up."""
_KEYS_OF_CALL: Final = attrgetter(*KEYS, "session", "layer", "rule", "profile")
_BY_TIME: Final = (EVENTS.c.at_ms, EVENTS.c.position)
_NEWEST_FIRST: Final = (EVENTS.c.at_ms.desc(), EVENTS.c.position.desc())


class EventBatch(NamedTuple):
    """Events, and the position up to which there are no others."""

    events: Sequence[IndexedEvent]
    position: int


def read_taken(connection: Connection, log: str) -> int:
    """The number of the newest inserted event of a log."""
    taken = connection.execute(select(LOGS.c.taken).where(LOGS.c.log == log)).scalar_one_or_none()
    return 0 if taken is None else int(taken)


def has_taken(connection: Connection, log: str, first_seq: int, last_seq: int) -> bool:
    """Whether the index has an event of a log with one of these numbers."""
    query = select(EVENTS.c.seq).where(EVENTS.c.log == log, EVENTS.c.seq.between(first_seq, last_seq))
    return connection.execute(query.limit(1)).first() is not None


def read_newest(connection: Connection) -> int:
    position: int = connection.execute(select(HEAD.c.position)).scalar_one()
    return position


def insert_batch(connection: Connection, *, node: str, log: str, batch: LineBatch, now_ms: int) -> int:
    """Insert the new events of a batch, each once. Returns the number up to which the index has the log."""
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
            bodies.append((position, msgspec.json.encode(line.event).decode()))
    if rows:
        _insert(connection, EVENTS, rows)
        _insert(connection, BODIES, bodies)
        connection.execute(sa.update(HEAD).values(position=position))
    known = {"taken": batch.upto, "seen_ms": now_ms}
    if connection.execute(sa.update(LOGS).where(LOGS.c.log == log).values(known)).rowcount == 0:
        connection.execute(insert(LOGS), {"log": log, "node": node} | known)
    return batch.upto


def _insert(connection: Connection, table: sa.Table, rows: list[tuple[Any, ...]]) -> None:
    """Insert complete rows by the driver: every tool call passes through here."""
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    names, marks = ", ".join(table.columns.keys()), ", ".join([mark] * len(table.columns))
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)  # noqa: S608 (our own names)


def _row(line: AuditLine) -> tuple[Any, ...]:
    event, session, speed = line.event, "", None
    if isinstance(event, CallRecorded):
        keys = _KEYS_OF_CALL(event)
        speed = None if event.outcome == "denied" else classify_speed(event.duration_us)
    else:
        if isinstance(event, events.InvocationEnded):
            session = event.invocation_id
        elif isinstance(event, events.ApprovalRecorded):
            session = event.approval_id
        elif isinstance(event, events.SessionEnded):
            session = event.session
        keys = (*(getattr(event, name, "") for name in KEYS), session, "", "", getattr(event, "profile", ""))
    *shown, profile = _make_columns(keys)
    return (line.seq, event.at_ms, event.__struct_config__.tag, *shown, speed, profile)


def _make_columns(keys: tuple[str, ...]) -> Iterable[str | None]:
    """The values of columns. Most are short and plain, which one check over all of them shows."""
    text = "".join(keys)
    if len(text) <= tables.MAX_KEY_CHARS and "\0" not in text:
        return [key or None for key in keys]
    # PostgreSQL rejects NUL, and a caller may send one.
    return [key[: tables.MAX_KEY_CHARS].replace("\0", "\ufffd") or None for key in keys]


def build_conditions(event_filter: tables.EventFilter) -> list[ColumnElement[bool]]:
    found = []
    for name, value in event_filter.equals.items():
        if name == "outcome" and value in tables.OUTCOME_GROUPS:
            found.append(tables.OUTCOME_GROUPS[value])
        else:
            found.append(EVENTS.c[name] == value if value or name == "node" else EVENTS.c[name].is_(None))
    if event_filter.equals.get("outcome", "ok") not in {"ok", "admitted"}:
        found.append(tables.WENT_WRONG)
    if event_filter.since_ms is not None:
        found.append(EVENTS.c.at_ms >= event_filter.since_ms)
    if event_filter.until_ms is not None:
        found.append(EVENTS.c.at_ms < event_filter.until_ms)
    return found


def read_page(
    connection: Connection, event_filter: tables.EventFilter, before: tables.EventPosition | None, limit: int
) -> Sequence[IndexedEvent]:
    """The newest events by time, or those before a position."""
    query = select(EVENTS).where(*build_conditions(event_filter))
    if before is not None:
        query = query.where(sa.tuple_(*_BY_TIME) < before)
    return _read_events(connection, query.order_by(*_NEWEST_FIRST).limit(limit))


def read_after(
    connection: Connection, event_filter: tables.EventFilter, after: int, limit: int
) -> EventBatch:
    """The events that arrived after a position, in that order."""
    newest = read_newest(connection)
    if newest <= after:
        # Less than `after` if the index was rebuilt: reading continues there, and misses nothing.
        return EventBatch((), newest)
    new = EVENTS.c.position > after, EVENTS.c.position <= newest
    query = select(EVENTS).where(*new, *build_conditions(event_filter))
    found = _read_events(connection, query.order_by(EVENTS.c.position).limit(limit))
    return EventBatch(found, found[-1].position if len(found) == limit else newest)


def read_one(connection: Connection, log: str, seq: int) -> IndexedEvent | None:
    found = _read_events(connection, select(EVENTS).where(EVENTS.c.log == log, EVENTS.c.seq == seq))
    return found[0] if found else None


def read_around(connection: Connection, kept: IndexedEvent) -> Sequence[IndexedEvent]:
    """The other events of its session, invocation, approval or request, in order."""
    row = connection.execute(select(EVENTS).where(EVENTS.c.position == kept.position)).one_or_none()
    if row is None or (row.session is None and row.request_id is None):
        return ()
    if row.session is not None:
        same_story = [EVENTS.c.session == row.session]
    else:
        same_story = [EVENTS.c.request_id == row.request_id, EVENTS.c.principal == row.principal]
        same_story.append(EVENTS.c.at_ms.between(row.at_ms - NEAR_MS, row.at_ms + NEAR_MS))
    before = select(EVENTS).where(*same_story, sa.tuple_(*_BY_TIME) < kept.place)
    after = select(EVENTS).where(*same_story, sa.tuple_(*_BY_TIME) > kept.place)
    earlier = _read_events(connection, before.order_by(*_NEWEST_FIRST).limit(MAX_AROUND))
    return (*reversed(earlier), *_read_events(connection, after.order_by(*_BY_TIME).limit(MAX_AROUND)))


def _read_events(connection: Connection, query: sa.Select[Any]) -> Sequence[IndexedEvent]:
    """The events of these rows, in order. Bodies are read only for these rows."""
    rows = connection.execute(query).all()
    query = select(BODIES).where(BODIES.c.position.in_([row.position for row in rows]))
    bodies = {row.position: row.body for row in connection.execute(query)}
    return [
        IndexedEvent(row.position, row.node, row.log, row.seq, decode_event(bodies[row.position]))
        for row in rows
    ]


def prune(connection: Connection, *, before_ms: int, keep: int, step: int) -> int:
    """Delete up to `step` events that are too old or exceed `keep`, and return their number. A log without
    events since `before_ms` is forgotten: if it were sent again, all its events would be too old."""
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
    connection.execute(delete(TOKENS).where(TOKENS.c.day < before_ms // DAY_MS))
    connection.execute(delete(LOGS).where(LOGS.c.seen_ms < before_ms))
    return len(dropped)
