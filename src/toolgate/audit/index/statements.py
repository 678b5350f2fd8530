"""What is asked of the tables of the index, and how events become rows: the same on every engine."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
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
from toolgate.audit.index.tables import BODIES, EVENTS, HEAD, KEYS, LOGS, WENT_WRONG
from toolgate.audit.lines import Batch, Line, decode_body, encode_body
from toolgate.audit.queries import MAX_KEY_CHARS, Filter, KeptEvent, Place
from toolgate.audit.speeds import speed_of
from toolgate.audit.tokens import add_tokens, prune_tokens

AROUND: Final = 100
"""Events of a story before the one that is asked for, and after it."""
NEAR_MS: Final = 10 * 60_000
"""Clients number their requests from 1 on, again and again: one number much later is another request."""

_NOT_LISTED: Final = (CallStarted, TokensCounted)
"""That a call began is for the log alone: its end comes as well. Tokens are added up."""
_KEYS_OF_CALL: Final = attrgetter(*KEYS, "session", "layer", "rule", "profile")
_BY_TIME: Final = (EVENTS.c.at_ms, EVENTS.c.position)
_NEWEST_FIRST: Final = (EVENTS.c.at_ms.desc(), EVENTS.c.position.desc())


class Followed(NamedTuple):
    """What came in, and the position up to which it is all there is."""

    events: Sequence[KeptEvent]
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


def take_in(connection: Connection, *, node: str, log: str, batch: Batch, now_ms: int) -> int:
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


def _row(line: Line) -> tuple[Any, ...]:
    event, session, speed = line.event, "", None
    if isinstance(event, CallRecorded):
        keys = _KEYS_OF_CALL(event)
        speed = None if event.outcome == "denied" else speed_of(event.duration_us)
    else:
        if isinstance(event, InvocationEnded):
            session = event.invocation_id
        elif isinstance(event, ApprovalRecorded):
            session = event.approval_id
        elif isinstance(event, SessionEnded):
            session = event.session
        keys = (*(getattr(event, name, "") for name in KEYS), session, "", "", getattr(event, "profile", ""))
    *shown, profile = _shown(keys)
    return (line.seq, event.at_ms, event.__struct_config__.tag, *shown, speed, profile)


def _shown(keys: tuple[str, ...]) -> Iterable[str | None]:
    """As columns have them. Most are short and plain, which is seen at one look at all of them."""
    text = "".join(keys)
    is_plain = len(text) <= MAX_KEY_CHARS and "\0" not in text
    return [key or None for key in keys] if is_plain else map(_key, keys)


def _key(value: str) -> str | None:
    if len(value) > MAX_KEY_CHARS:
        value = value[:MAX_KEY_CHARS]
    # PostgreSQL takes no NUL, and a caller may well send one.
    return (value.replace("\0", "\ufffd") if "\0" in value else value) or None


def conditions(asked: Filter) -> list[ColumnElement[bool]]:
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


def read_page(connection: Connection, asked: Filter, before: Place | None, limit: int) -> Sequence[KeptEvent]:
    """The newest by time, or those before a place."""
    query = select(EVENTS).where(*conditions(asked))
    if before is not None:
        query = query.where(tuple_(*_BY_TIME) < before)
    return _kept(connection, query.order_by(*_NEWEST_FIRST).limit(limit))


def read_following(connection: Connection, asked: Filter, after: int, limit: int) -> Followed:
    """Those that came in after a position, in that order."""
    newest = read_newest(connection)
    if newest <= after:
        # Before it where the index was made anew: from there on nothing is missed.
        return Followed((), newest)
    new = EVENTS.c.position > after, EVENTS.c.position <= newest
    query = select(EVENTS).where(*new, *conditions(asked))
    found = _kept(connection, query.order_by(EVENTS.c.position).limit(limit))
    return Followed(found, found[-1].position if len(found) == limit else newest)


def read_one(connection: Connection, log: str, seq: int) -> KeptEvent | None:
    """The event of that name."""
    found = _kept(connection, select(EVENTS).where(EVENTS.c.log == log, EVENTS.c.seq == seq))
    return found[0] if found else None


def read_around(connection: Connection, kept: KeptEvent) -> Sequence[KeptEvent]:
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
    earlier = _kept(connection, before.order_by(*_NEWEST_FIRST).limit(AROUND))
    return (*reversed(earlier), *_kept(connection, after.order_by(*_BY_TIME).limit(AROUND)))


def _kept(connection: Connection, query: Select[Any]) -> Sequence[KeptEvent]:
    """The events of these rows, in their order. What they say is looked up for them alone."""
    rows = connection.execute(query).all()
    said = select(BODIES).where(BODIES.c.position.in_([row.position for row in rows]))
    bodies = {row.position: row.body for row in connection.execute(said)}
    return [
        KeptEvent(row.position, row.node, row.log, row.seq, decode_body(bodies[row.position])) for row in rows
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
