"""The queue of invocations in SQL: each function is one transaction's work, the same for every engine.

Claimers at several replicas take different rows at once: each locks what it takes, and passes over what
another one has locked. On SQLite there is one writer, and nothing to pass over.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from toolgate.model.invocations import ENDED, MAX_LOG_BYTES, MAX_LOG_LINES, Ending, Invocation, LogLine
from toolgate.model.principals import Principal
from toolgate.registry import invocation_steps as steps
from toolgate.registry.database.tables import INVOCATION_LINES, INVOCATIONS
from toolgate.registry.invocation_steps import Entry
from toolgate.registry.invocations.contract import KEEP_ENDED, Made, Mark, Verdict

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_principal: Final = msgspec.msgpack.Decoder(Principal).decode
_decode_ending: Final = msgspec.msgpack.Decoder(Ending).decode
_decode_line: Final = msgspec.msgpack.Decoder(LogLine).decode

_ROW: Final = INVOCATIONS.c
_LARGE: Final = frozenset({"input", "stdout", "stderr"})
_LIGHT: Final = [column for column in _ROW if column.name not in _LARGE]
_WITH_INPUT: Final[Sequence[ColumnElement[Any]]] = [*_LIGHT, _ROW.input]
_LAPSED: Final = (_ROW.state == "running") & (_ROW.lease_until_ms < bindparam("now_ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What there is for a claimer to do, and when that was."""

    now_ms: int
    has_queued: bool
    has_lapsed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who takes how many, and whether leases that are over are ended first."""

    node_id: str
    limit: int
    ends_leases: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which invocations are listed."""

    task_id: str | None
    principal_id: str | None
    before: str | None
    limit: int


def create_invocation(connection: Connection, invocation: Invocation) -> Made:
    """See `Invocations.create`."""
    if (earlier := _read_earlier(connection, invocation)) is not None:
        return earlier
    steps.check_room(count_queued(connection))
    row = _new_row(invocation)
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    # One statement that both engines know: the same key may be given to two replicas at once.
    stored = connection.execute(
        text(
            f"INSERT INTO invocations ({names}) VALUES ({values}) "  # noqa: S608 (names of columns)
            "ON CONFLICT DO NOTHING"
        ),
        row,
    )
    if stored.rowcount:
        return Made(invocation, is_new=True)
    if (earlier := _read_earlier(connection, invocation)) is not None:
        return earlier
    raise steps.taken_id(invocation.invocation_id)


def count_queued(connection: Connection) -> int:
    """See `Invocations.waiting`."""
    queued = select(func.count()).select_from(INVOCATIONS).where(_ROW.state == "queued")
    return int(connection.execute(queued).scalar_one())


def look(connection: Connection, now_ms: int) -> Look:
    """Whether a claim would find something to do."""
    query = select(exists().where(_ROW.state == "queued"), exists().where(_LAPSED))
    has_queued, has_lapsed = connection.execute(query, {"now_ms": now_ms}).one()
    return Look(now_ms=now_ms, has_queued=has_queued, has_lapsed=has_lapsed)


def claim_invocations(connection: Connection, claim: Claim, now_ms: int) -> Sequence[Invocation]:
    """See `Queue.claim`."""
    if claim.ends_leases:
        lost = select(*_LIGHT).where(_LAPSED).with_for_update(skip_locked=True)
        rows = connection.execute(lost, {"now_ms": now_ms}).all()
        _store(connection, ((row.position, steps.lapsed(_entry(row), now_ms)) for row in rows))
    rows = _take(connection, claim.limit)
    taken = [(row.position, steps.taken(_entry(row), node_id=claim.node_id, now_ms=now_ms)) for row in rows]
    _store(connection, taken)
    inputs = {row.position: row.input for row in rows}
    return [replace(entry.invocation, input=inputs[position]) for position, entry in taken]


def hear_report(
    connection: Connection,
    invocation_id: str,
    attempt: int,
    *,
    lines: Sequence[LogLine],
    ending: Ending | None,
    now_ms: int,
) -> tuple[Verdict, bool]:
    """See `Queue.report`; and whether it is queued again."""
    position, entry = _lock(connection, invocation_id)
    if entry is None:
        return "lost", False
    heard = steps.heard(entry, attempt, lines=lines, ending=ending, now_ms=now_ms)
    if heard.entry is None:
        return heard.verdict, False
    _store(connection, [(position, heard.entry)])
    if heard.lines:
        _append(connection, position, heard.lines)
    return heard.verdict, heard.entry.invocation.state == "queued"


def cancel_invocation(connection: Connection, invocation_id: str, now_ms: int) -> Invocation:
    """See `Invocations.cancel`."""
    position, entry = _lock(connection, invocation_id)
    if entry is None:
        raise steps.unknown(invocation_id)
    after = steps.cancelled(entry, now_ms)
    if after is not entry:
        _store(connection, [(position, after)])
    found = read_invocation(connection, invocation_id)
    assert found is not None  # its row is locked
    return found


def read_invocation(connection: Connection, invocation_id: str) -> Invocation | None:
    """One of them, whole."""
    row = connection.execute(select(INVOCATIONS).where(_ROW.id == invocation_id)).one_or_none()
    if row is None:
        return None
    ending = _entry(row).invocation.ending
    if ending is not None:
        ending = replace(ending, stdout=row.stdout or b"", stderr=row.stderr or b"")
    return replace(_entry(row).invocation, input=row.input, ending=ending)


def read_invocations(connection: Connection, wanted: Filter) -> Sequence[Invocation]:
    """See `Invocations.list`."""
    query = select(*_LIGHT).order_by(_ROW.position.desc()).limit(wanted.limit)
    if wanted.task_id is not None:
        query = query.where(_ROW.task_id == wanted.task_id)
    if wanted.principal_id is not None:
        query = query.where(_ROW.principal_id == wanted.principal_id)
    if wanted.before is not None:
        last = INVOCATIONS.alias("last")
        query = query.where(
            _ROW.position < select(last.c.position).where(last.c.id == wanted.before).scalar_subquery()
        )
    return [_entry(row).invocation for row in connection.execute(query)]


def read_marks(connection: Connection, ids: Collection[str]) -> Mapping[str, Mark]:
    """See `Invocations.marks`."""
    query = select(_ROW.id, _ROW.state, _ROW.attempt, _ROW.lines).where(_ROW.id.in_(ids))
    return {row.id: Mark(row.state, row.attempt, row.lines) for row in connection.execute(query)}


def read_lines(connection: Connection, invocation_id: str, *, after: int, limit: int) -> Sequence[LogLine]:
    """See `Invocations.lines`."""
    lines = INVOCATION_LINES.c
    query = (
        select(lines.seq, lines.body)
        .where(lines.invocation == _position_of(invocation_id), lines.seq > after)
        .order_by(lines.seq)
        .limit(limit)
    )
    return [replace(_decode_line(row.body), seq=row.seq) for row in connection.execute(query)]


def forget_invocations(connection: Connection, now_ms: int) -> None:
    """See `Invocations.forget`."""
    newest_first = func.row_number().over(partition_by=_ROW.task_id, order_by=_ROW.position.desc())
    ended = (
        select(_ROW.position, _ROW.ended_ms, newest_first.label("place"))
        .where(_ROW.state.in_(ENDED))
        .subquery("ended")
    )
    is_old = or_(ended.c.ended_ms < steps.forgotten_before_ms(now_ms), ended.c.place > KEEP_ENDED)
    old = select(ended.c.position).where(is_old)
    connection.execute(delete(INVOCATION_LINES).where(INVOCATION_LINES.c.invocation.in_(old)))
    connection.execute(delete(INVOCATIONS).where(_ROW.position.in_(old)))


def _take(connection: Connection, limit: int) -> list[Row[Any]]:
    """Lock those whose turn it is. What another claimer has locked is passed over, not waited for."""
    # Put in order here: a planner that guesses wrong how many there are takes a hundred times as long.
    queued = select(_ROW.position, _ROW.task_id).where(_ROW.state == "queued").order_by(_ROW.position)
    running = (
        select(_ROW.task_id, func.count().label("running"))
        .where(_ROW.state == "running")
        .group_by(_ROW.task_id)
    )
    counts = {row.task_id: row.running for row in connection.execute(running)}
    waiting = steps.in_turn(((task_id, position) for position, task_id in connection.execute(queued)), counts)
    taken: list[Row[Any]] = []
    while waiting and len(taken) < limit:
        wanted, waiting = waiting[: limit - len(taken)], waiting[limit - len(taken) :]
        # Queued, once more: it may have been taken since.
        query = select(*_WITH_INPUT).where(_ROW.position.in_(wanted), _ROW.state == "queued")
        rows = {row.position: row for row in connection.execute(query.with_for_update(skip_locked=True))}
        taken += [rows[position] for position in wanted if position in rows]
    return taken


def _lock(connection: Connection, invocation_id: str) -> tuple[int, Entry | None]:
    query = select(*_LIGHT).where(_ROW.id == invocation_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return (0, None) if row is None else (row.position, _entry(row))


def _position_of(invocation_id: str) -> ColumnElement[int]:
    return select(_ROW.position).where(_ROW.id == invocation_id).scalar_subquery()


def _read_earlier(connection: Connection, new: Invocation) -> Made | None:
    if new.idempotency_key is None:
        return None
    query = select(_ROW.id, _ROW.input_digest).where(
        _ROW.principal_id == new.principal.id,
        _ROW.task_id == new.task_id,
        _ROW.idempotency_key == new.idempotency_key,
    )
    row = connection.execute(query).one_or_none()
    earlier = None if row is None else read_invocation(connection, row.id)
    if row is None or earlier is None:
        return None
    steps.check_repeated(earlier, is_same_input=row.input_digest == _digest(new.input))
    return Made(earlier, is_new=False)


def _append(connection: Connection, position: int, lines: Sequence[LogLine]) -> None:
    kept, table = steps.newest(lines), INVOCATION_LINES.c
    rows = [{"invocation": position, "seq": line.seq, "body": steps.encode_line(line)} for line in kept]
    connection.execute(insert(INVOCATION_LINES), rows)
    since = func.sum(func.length(table.body)).over(order_by=table.seq.desc())
    log = select(table.seq, since.label("size")).where(table.invocation == position).subquery("log")
    too_much = select(func.max(log.c.seq)).where(log.c.size > MAX_LOG_BYTES)
    last_old = max(kept[-1].seq - MAX_LOG_LINES, connection.execute(too_much).scalar_one() or 0)
    connection.execute(delete(INVOCATION_LINES).where(table.invocation == position, table.seq <= last_old))


def _store(connection: Connection, entries: Iterable[tuple[int, Entry]]) -> None:
    for position, entry in entries:
        connection.execute(
            update(INVOCATIONS).where(_ROW.position == position).values(**_state_columns(entry))
        )


def _new_row(invocation: Invocation) -> dict[str, Any]:
    return {
        "id": invocation.invocation_id,
        "task_id": invocation.task_id,
        "principal_id": invocation.principal.id,
        "principal": _encode(invocation.principal),
        "revision": invocation.revision,
        "created_ms": invocation.created_ms,
        "retries": invocation.retries,
        "idempotency_key": invocation.idempotency_key,
        "input_digest": _digest(invocation.input),
        "input": invocation.input,
        **_state_columns(Entry(invocation=invocation)),
    }


def _state_columns(entry: Entry) -> dict[str, Any]:
    known, ending = entry.invocation, entry.invocation.ending
    columns = {
        "state": known.state,
        "attempt": known.attempt,
        "losses": entry.losses,
        "node_id": known.node_id,
        "started_ms": known.started_ms,
        "lease_until_ms": known.lease_until_ms,
        "is_cancel_asked": known.is_cancel_asked,
        "heard": entry.heard,
        "lines": entry.lines,
        "ended_ms": known.ended_ms,
    }
    if ending is None:
        return columns
    # Output is kept apart: a list does not read it.
    light = _encode(replace(ending, stdout=b"", stderr=b""))
    return {**columns, "ending": light, "stdout": ending.stdout, "stderr": ending.stderr}


def _entry(row: Row[Any]) -> Entry:
    """What a row says, without what is large."""
    return Entry(
        invocation=Invocation(
            invocation_id=row.id,
            task_id=row.task_id,
            principal=_decode_principal(row.principal),
            revision=row.revision,
            input=b"",
            created_ms=row.created_ms,
            retries=row.retries,
            idempotency_key=row.idempotency_key,
            state=row.state,
            attempt=row.attempt,
            node_id=row.node_id,
            started_ms=row.started_ms,
            lease_until_ms=row.lease_until_ms,
            is_cancel_asked=row.is_cancel_asked,
            ended_ms=row.ended_ms,
            ending=None if row.ending is None else _decode_ending(row.ending),
        ),
        losses=row.losses,
        heard=row.heard,
        lines=row.lines,
    )


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
