"""The queue of invocations in SQL: each function is one transaction's work, the same for every engine.

Claimers at several replicas take different rows at once: each locks what it takes, and passes over what
another one has locked. On SQLite there is one writer, and nothing to pass over.

The queue of invocations over the tables beside the records, for the event loop.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

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

from toolgate.errors import ToolgateError
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    Invocation,
    InvocationResult,
    LogLine,
)
from toolgate.model.principals import Principal
from toolgate.registry.database.change_count import ChangeCounter
from toolgate.registry.database.tables import INVOCATION_LINES, INVOCATIONS
from toolgate.registry.database.transactions import Topic, Transactions
from toolgate.registry.invocations import contract as steps
from toolgate.registry.invocations.contract import (
    KEEP_ENDED,
    LEASE_MS,
    InvocationCreation,
    InvocationEntry,
    InvocationProgress,
    LeaseVerdict,
    claim_or_wait,
)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_principal: Final = msgspec.msgpack.Decoder(Principal).decode
_decode_ending: Final = msgspec.msgpack.Decoder(InvocationResult).decode
_decode_line: Final = msgspec.msgpack.Decoder(LogLine).decode

_ROW: Final = INVOCATIONS.c
_LARGE: Final = frozenset({"input", "stdout", "stderr"})
_LIGHT: Final = [column for column in _ROW if column.name not in _LARGE]
_WITH_INPUT: Final[Sequence[ColumnElement[Any]]] = [*_LIGHT, _ROW.input]
_LAPSED: Final = (_ROW.state == "running") & (_ROW.lease_until_ms < bindparam("now_ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What there is for a claimer to do, and when that was."""

    now_ms: int
    has_queued: bool
    has_lapsed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who takes how many, and whether leases that are over are ended first."""

    node_id: str
    limit: int
    ends_leases: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationFilter:
    """Which invocations are listed."""

    task_id: str | None
    principal_id: str | None
    before: str | None
    limit: int


def create_invocation(connection: Connection, invocation: Invocation) -> InvocationCreation:
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
        return InvocationCreation(invocation, is_new=True)
    if (earlier := _read_earlier(connection, invocation)) is not None:
        return earlier
    raise steps.duplicate_invocation(invocation.invocation_id)


def count_queued(connection: Connection) -> int:
    """See `Invocations.waiting`."""
    queued = select(func.count()).select_from(INVOCATIONS).where(_ROW.state == "queued")
    return int(connection.execute(queued).scalar_one())


def read_queue_state(connection: Connection, now_ms: int) -> QueueState:
    """Whether a claim would find something to do."""
    query = select(exists().where(_ROW.state == "queued"), exists().where(_LAPSED))
    has_queued, has_lapsed = connection.execute(query, {"now_ms": now_ms}).one()
    return QueueState(now_ms=now_ms, has_queued=has_queued, has_lapsed=has_lapsed)


def claim_invocations(connection: Connection, claim: ClaimRequest, now_ms: int) -> Sequence[Invocation]:
    """See `Queue.claim`."""
    if claim.ends_leases:
        lost = select(*_LIGHT).where(_LAPSED).with_for_update(skip_locked=True)
        rows = connection.execute(lost, {"now_ms": now_ms}).all()
        _store(connection, ((row.position, steps.expire_lease(_entry(row), now_ms)) for row in rows))
    rows = _lock_next(connection, claim.limit)
    taken = [
        (row.position, steps.lease_entry(_entry(row), node_id=claim.node_id, now_ms=now_ms)) for row in rows
    ]
    _store(connection, taken)
    inputs = {row.position: row.input for row in rows}
    return [replace(entry.invocation, input=inputs[position]) for position, entry in taken]


def record_report(
    connection: Connection,
    invocation_id: str,
    attempt: int,
    *,
    lines: Sequence[LogLine],
    ending: InvocationResult | None,
    now_ms: int,
) -> tuple[LeaseVerdict, bool]:
    """See `Queue.report`; and whether it is queued again."""
    position, entry = _lock(connection, invocation_id)
    if entry is None:
        return "lost", False
    heard = steps.apply_report(entry, attempt, lines=lines, ending=ending, now_ms=now_ms)
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
        raise steps.invocation_not_found(invocation_id)
    after = steps.cancel_entry(entry, now_ms)
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


def read_invocations(connection: Connection, wanted: InvocationFilter) -> Sequence[Invocation]:
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


def read_progress(connection: Connection, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
    """See `Invocations.marks`."""
    query = select(_ROW.id, _ROW.state, _ROW.attempt, _ROW.lines).where(_ROW.id.in_(ids))
    return {
        row.id: InvocationProgress(row.state, row.attempt, row.lines) for row in connection.execute(query)
    }


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
    is_old = or_(ended.c.ended_ms < steps.retention_cutoff_ms(now_ms), ended.c.place > KEEP_ENDED)
    old = select(ended.c.position).where(is_old)
    connection.execute(delete(INVOCATION_LINES).where(INVOCATION_LINES.c.invocation.in_(old)))
    connection.execute(delete(INVOCATIONS).where(_ROW.position.in_(old)))


def _lock_next(connection: Connection, limit: int) -> list[Row[Any]]:
    """Lock those whose turn it is. What another claimer has locked is passed over, not waited for."""
    # Put in order here: a planner that guesses wrong how many there are takes a hundred times as long.
    queued = select(_ROW.position, _ROW.task_id).where(_ROW.state == "queued").order_by(_ROW.position)
    running = (
        select(_ROW.task_id, func.count().label("running"))
        .where(_ROW.state == "running")
        .group_by(_ROW.task_id)
    )
    counts = {row.task_id: row.running for row in connection.execute(running)}
    waiting = steps.order_fairly(
        ((task_id, position) for position, task_id in connection.execute(queued)), counts
    )
    taken: list[Row[Any]] = []
    while waiting and len(taken) < limit:
        wanted, waiting = waiting[: limit - len(taken)], waiting[limit - len(taken) :]
        # Queued, once more: it may have been taken since.
        query = select(*_WITH_INPUT).where(_ROW.position.in_(wanted), _ROW.state == "queued")
        rows = {row.position: row for row in connection.execute(query.with_for_update(skip_locked=True))}
        taken += [rows[position] for position in wanted if position in rows]
    return taken


def _lock(connection: Connection, invocation_id: str) -> tuple[int, InvocationEntry | None]:
    query = select(*_LIGHT).where(_ROW.id == invocation_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return (0, None) if row is None else (row.position, _entry(row))


def _position_of(invocation_id: str) -> ColumnElement[int]:
    return select(_ROW.position).where(_ROW.id == invocation_id).scalar_subquery()


def _read_earlier(connection: Connection, new: Invocation) -> InvocationCreation | None:
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
    steps.check_same_input(earlier, is_same_input=row.input_digest == _input_digest(new.input))
    return InvocationCreation(earlier, is_new=False)


def _append(connection: Connection, position: int, lines: Sequence[LogLine]) -> None:
    kept, table = steps.keep_newest_lines(lines), INVOCATION_LINES.c
    rows = [{"invocation": position, "seq": line.seq, "body": steps.encode_line(line)} for line in kept]
    connection.execute(insert(INVOCATION_LINES), rows)
    since = func.sum(func.length(table.body)).over(order_by=table.seq.desc())
    log = select(table.seq, since.label("size")).where(table.invocation == position).subquery("log")
    too_much = select(func.max(log.c.seq)).where(log.c.size > MAX_LOG_BYTES)
    last_old = max(kept[-1].seq - MAX_LOG_LINES, connection.execute(too_much).scalar_one() or 0)
    connection.execute(delete(INVOCATION_LINES).where(table.invocation == position, table.seq <= last_old))


def _store(connection: Connection, entries: Iterable[tuple[int, InvocationEntry]]) -> None:
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
        "input_digest": _input_digest(invocation.input),
        "input": invocation.input,
        **_state_columns(InvocationEntry(invocation=invocation)),
    }


def _state_columns(entry: InvocationEntry) -> dict[str, Any]:
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


def _entry(row: Row[Any]) -> InvocationEntry:
    """What a row says, without what is large."""
    return InvocationEntry(
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


def _input_digest(content: bytes) -> str:
    return sha256(content).hexdigest()


T = TypeVar("T")


class SqlInvocations:
    """The queue as every replica on one database sees it; `read_clock_ms` is the clock they all go by."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms
        self._count = ChangeCounter()
        self._queued = ChangeCounter()
        self._since_ms: int | None = None
        """Since when the database has answered every claim. Before, nodes may not have been heard either."""

    async def create(self, invocation: Invocation) -> InvocationCreation:
        return await self._change(partial(create_invocation, invocation=invocation), "queue")

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        claim = partial(self._claim, node_id, limit=limit)
        return await claim_or_wait(wait_s, claim, self._queued)

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        def work(connection: Connection) -> tuple[LeaseVerdict, bool]:
            return record_report(
                connection,
                invocation_id,
                attempt,
                lines=lines,
                ending=ending,
                now_ms=self._read_clock_ms(connection),
            )

        verdict, is_queued = await self._change(work, "runs" if lines or ending else "leases")
        if is_queued:
            self._queued.increment()
        return verdict

    async def cancel(self, invocation_id: str) -> Invocation:
        def work(connection: Connection) -> Invocation:
            return cancel_invocation(connection, invocation_id, self._read_clock_ms(connection))

        return await self._change(work, "runs")

    async def get(self, invocation_id: str) -> Invocation | None:
        return await self._transactions.read(partial(read_invocation, invocation_id=invocation_id))

    async def list(
        self,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        wanted = InvocationFilter(task_id=task_id, principal_id=principal_id, before=before, limit=limit)
        return await self._transactions.read(partial(read_invocations, wanted=wanted))

    async def marks(self, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
        return await self._transactions.read(partial(read_progress, ids=ids))

    async def waiting(self) -> int:
        return await self._transactions.read(count_queued)

    async def lines(
        self, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        work = partial(read_lines, invocation_id=invocation_id, after=after, limit=limit)
        return await self._transactions.read(work)

    async def forget(self, *, now_ms: int) -> None:
        await self._change(partial(forget_invocations, now_ms=now_ms), "leases")

    async def changed(self, seen: int) -> int:
        return await self._count.changed(seen)

    def on_news(self, *, is_queued: bool) -> None:
        """Something was made, taken or reported, here or by another replica."""
        self._count.increment()
        if is_queued:
            self._queued.increment()

    def close(self) -> None:
        """End those who wait."""
        self._count.close()
        self._queued.close()

    async def _claim(self, node_id: str, *, limit: int) -> Sequence[Invocation]:
        # Looked at first: who waits writes nothing, and wakes nobody.
        found = await self._look()
        ends_leases = found.has_lapsed and self._has_listened(found.now_ms)
        if not (ends_leases or (found.has_queued and limit)):
            return ()
        claim = ClaimRequest(node_id=node_id, limit=limit, ends_leases=ends_leases)

        def work(connection: Connection) -> Sequence[Invocation]:
            return claim_invocations(connection, claim, self._read_clock_ms(connection))

        return await self._change(work, "runs")

    async def _look(self) -> QueueState:
        try:
            found = await self._transactions.read(
                lambda connection: read_queue_state(connection, self._read_clock_ms(connection))
            )
        except ToolgateError:
            self._since_ms = None
            raise
        self._since_ms = found.now_ms if self._since_ms is None else self._since_ms
        return found

    def _has_listened(self, now_ms: int) -> bool:
        return self._since_ms is not None and now_ms - self._since_ms >= LEASE_MS

    async def _change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        def tell(_: T) -> None:
            if topic != "leases":
                self.on_news(is_queued=topic == "queue")

        return await self._transactions.change(work, then=tell, topic=topic)
