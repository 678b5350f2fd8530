"""The queue of invocations in SQL, the same for every engine.

Claimers at several replicas take different rows at once: each locks what it takes and skips what another one
has locked. SQLite has one writer, and nothing to skip.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
    update,
)

from toolgate.errors import Conflict, QueueFull, ToolgateError
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    Invocation,
    InvocationResult,
    LogLine,
)
from toolgate.model.principals import Principal
from toolgate.registry.database.tables import INVOCATION_LINES, INVOCATIONS, insert_new
from toolgate.registry.database.transactions import ChangeCounter, SharedTable, Topic, Transactions
from toolgate.registry.invocations.contract import (
    DEFAULT_QUEUE_LIMITS,
    KEEP_ENDED_MS,
    LEASE_MS,
    InvocationCreation,
    InvocationEntry,
    InvocationProgress,
    LeaseVerdict,
    QueueLimits,
    apply_report,
    cancel_entry,
    encode_line,
    expire_lease,
    invocation_not_found,
    keep_newest_lines,
    lease_entry,
    order_fairly,
)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_principal: Final = msgspec.msgpack.Decoder(Principal).decode
_decode_ending: Final = msgspec.msgpack.Decoder(InvocationResult).decode
_decode_line: Final = msgspec.msgpack.Decoder(LogLine).decode

_ROW: Final = INVOCATIONS.c
_LARGE: Final = frozenset({"input", "stdout", "stderr"})
_LIGHT: Final = [column for column in _ROW if column.name not in _LARGE]
_WITH_INPUT: Final[Sequence[ColumnElement[Any]]] = [*_LIGHT, _ROW.input]
_EXPIRED: Final = (_ROW.state == "running") & (_ROW.lease_until_ms < bindparam("now_ms"))


class Invocations(SharedTable):
    """The queue and its history, as every control plane replica on one database sees them. An
    `InvocationQueue`."""

    def __init__(
        self,
        transactions: Transactions,
        read_clock_ms: Callable[[Connection], int],
        limits: QueueLimits = DEFAULT_QUEUE_LIMITS,
    ) -> None:
        super().__init__(transactions, read_clock_ms)
        self._limits = limits
        self._count = ChangeCounter()
        self._queued = ChangeCounter()
        self._up_since_ms: int | None = None
        """Since when the database has answered every claim. Before, reports of nodes may have failed, too."""

    async def create(self, invocation: Invocation) -> InvocationCreation:
        """Queue a new invocation. Raises QueueFull, and Conflict for a known id.

        An idempotency key holds for one principal and one task while the invocation is kept: the same input
        returns the earlier invocation, another input is a Conflict.
        """
        work = partial(_create, invocation=invocation, max_queued=self._limits.max_queued)
        return await self._transactions.change(work, then=partial(self._notify, "queue"), topic="queue")

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + wait_s
        while True:
            seen = await self._queued.changed(-1)  # first, so that nothing queued meanwhile is missed
            claimed = await self._claim(node_id, limit)
            left_s = until_s - now_s()
            if claimed or left_s <= 0:
                return claimed
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, self._limits.poll_s)):
                    await self._queued.changed(seen)

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        topic: Topic = "runs" if lines or ending else "leases"
        then = partial(self._notify, topic)
        work = partial(_record_report, attempt=attempt, lines=lines, ending=ending)
        verdict: LeaseVerdict
        verdict, is_queued = await self._change(work, topic, then=then, invocation_id=invocation_id)
        if is_queued:
            self._queued.increment()
        return verdict

    async def cancel(self, invocation_id: str) -> Invocation:
        """End a queued invocation, request the end of a running one. Raises NotFound."""
        then = partial(self._notify, "runs")
        return await self._change(_cancel, "runs", then=then, invocation_id=invocation_id)

    async def get(self, invocation_id: str) -> Invocation | None:
        """Return one invocation, or None."""
        return await self._transactions.read(partial(_read_invocation, invocation_id=invocation_id))

    async def list(
        self,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        """Return invocations, newest first, without inputs and outputs. `before`: the last id seen."""
        work = partial(
            _list_invocations, task_id=task_id, principal_id=principal_id, before=before, limit=limit
        )
        return await self._transactions.read(work)

    async def marks(self, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
        """Return the progress of those that exist, in one query."""
        return await self._transactions.read(partial(_read_progress, ids=ids))

    async def waiting(self) -> int:
        """Count the queued invocations."""
        return await self._transactions.read(_count_queued)

    async def lines(
        self, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        """Return the log after the line `after`, oldest first. Only its newest lines are kept."""
        work = partial(_read_lines, invocation_id=invocation_id, after=after, limit=limit)
        return await self._transactions.read(work)

    async def forget(self, *, now_ms: int) -> None:
        """Delete invocations that ended long ago, and the oldest of too many of a task."""
        work = partial(_forget, now_ms=now_ms, keep=self._limits.keep_ended)
        await self._transactions.change(work, topic="leases")

    async def changed(self, seen: int) -> int:
        """Wait for a change by any replica; see `ChangeCounter`. Renewing a lease is no change."""
        return await self._count.changed(seen)

    def on_change(self, *, is_queued: bool) -> None:
        """Wake those who wait, after a change here or by another replica."""
        self._count.increment()
        self._queued.increment_if(is_queued)

    def close(self) -> None:
        """End every wait."""
        self._count.close()
        self._queued.close()

    def _notify(self, topic: Topic, _result: object) -> None:
        if topic != "leases":
            self.on_change(is_queued=topic == "queue")

    async def _claim(self, node_id: str, limit: int) -> Sequence[Invocation]:
        # Read first: a claimer that waits writes nothing and wakes no other.
        try:
            now_ms, has_queued, has_expired = await self._read(_read_queue_state)
        except ToolgateError:
            self._up_since_ms = None
            raise
        if self._up_since_ms is None:
            self._up_since_ms = now_ms
        ends_leases = has_expired and now_ms - self._up_since_ms >= LEASE_MS
        if not (ends_leases or (has_queued and limit)):
            return ()
        work = partial(_claim_invocations, node_id=node_id, limit=limit, ends_leases=ends_leases)
        return await self._change(work, "runs", then=partial(self._notify, "runs"))


def _create(connection: Connection, invocation: Invocation, max_queued: int) -> InvocationCreation:
    if (earlier := _read_earlier(connection, invocation)) is not None:
        return earlier
    if (queued := _count_queued(connection)) >= max_queued:
        raise QueueFull(f"{queued} invocations wait already")
    # Two replicas may get the same idempotency key at once: then one of them inserts nothing.
    if insert_new(connection, INVOCATIONS, [_new_row(invocation)]):
        return InvocationCreation(invocation, is_new=True)
    if (earlier := _read_earlier(connection, invocation)) is not None:
        return earlier
    raise Conflict(f"duplicate invocation `{invocation.invocation_id}`")


def _count_queued(connection: Connection) -> int:
    queued = select(func.count()).select_from(INVOCATIONS).where(_ROW.state == "queued")
    return int(connection.execute(queued).scalar_one())


def _read_queue_state(connection: Connection, now_ms: int) -> tuple[int, bool, bool]:
    """Return the time, whether invocations are queued, and whether leases have expired."""
    query = select(exists().where(_ROW.state == "queued"), exists().where(_EXPIRED))
    has_queued, has_expired = connection.execute(query, {"now_ms": now_ms}).one()
    return now_ms, has_queued, has_expired


def _claim_invocations(
    connection: Connection, *, node_id: str, limit: int, ends_leases: bool, now_ms: int
) -> Sequence[Invocation]:
    if ends_leases:
        lost = select(*_LIGHT).where(_EXPIRED).with_for_update(skip_locked=True)
        rows = connection.execute(lost, {"now_ms": now_ms}).all()
        _store(connection, ((row.position, expire_lease(_entry(row), now_ms)) for row in rows))
    rows = _lock_next(connection, limit)
    leased = [(row.position, lease_entry(_entry(row), node_id=node_id, now_ms=now_ms)) for row in rows]
    _store(connection, leased)
    inputs = {row.position: row.input for row in rows}
    return [replace(entry.invocation, input=inputs[position]) for position, entry in leased]


def _record_report(
    connection: Connection,
    *,
    invocation_id: str,
    attempt: int,
    lines: Sequence[LogLine],
    ending: InvocationResult | None,
    now_ms: int,
) -> tuple[LeaseVerdict, bool]:
    """Return the verdict, and whether the invocation is queued again."""
    position, entry = _lock(connection, invocation_id)
    if entry is None:
        return "lost", False
    effect = apply_report(entry, attempt, lines=lines, ending=ending, now_ms=now_ms)
    if effect.entry is None:
        return effect.verdict, False
    _store(connection, [(position, effect.entry)])
    if effect.lines:
        _append(connection, position, effect.lines)
    return effect.verdict, effect.entry.invocation.state == "queued"


def _cancel(connection: Connection, invocation_id: str, now_ms: int) -> Invocation:
    position, entry = _lock(connection, invocation_id)
    if entry is None:
        raise invocation_not_found(invocation_id)
    after = cancel_entry(entry, now_ms)
    if after is not entry:
        _store(connection, [(position, after)])
    found = _read_invocation(connection, invocation_id)
    assert found is not None  # its row is locked
    return found


def _read_invocation(connection: Connection, invocation_id: str) -> Invocation | None:
    row = connection.execute(select(INVOCATIONS).where(_ROW.id == invocation_id)).one_or_none()
    if row is None:
        return None
    known = _entry(row).invocation
    ending = known.ending
    if ending is not None:
        ending = replace(ending, stdout=row.stdout or b"", stderr=row.stderr or b"")
    return replace(known, input=row.input, ending=ending)


def _list_invocations(
    connection: Connection, *, task_id: str | None, principal_id: str | None, before: str | None, limit: int
) -> Sequence[Invocation]:
    query = select(*_LIGHT).order_by(_ROW.position.desc()).limit(limit)
    if task_id is not None:
        query = query.where(_ROW.task_id == task_id)
    if principal_id is not None:
        query = query.where(_ROW.principal_id == principal_id)
    if before is not None:
        last = INVOCATIONS.alias("last")
        position = select(last.c.position).where(last.c.id == before).scalar_subquery()
        query = query.where(_ROW.position < position)
    return [_entry(row).invocation for row in connection.execute(query)]


def _read_progress(connection: Connection, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
    query = select(_ROW.id, _ROW.state, _ROW.attempt, _ROW.lines).where(_ROW.id.in_(ids))
    rows = connection.execute(query)
    return {row.id: InvocationProgress(row.state, row.attempt, row.lines) for row in rows}


def _read_lines(connection: Connection, invocation_id: str, *, after: int, limit: int) -> Sequence[LogLine]:
    lines = INVOCATION_LINES.c
    position = select(_ROW.position).where(_ROW.id == invocation_id).scalar_subquery()
    query = (
        select(lines.seq, lines.body)
        .where(lines.invocation == position, lines.seq > after)
        .order_by(lines.seq)
        .limit(limit)
    )
    return [replace(_decode_line(row.body), seq=row.seq) for row in connection.execute(query)]


def _forget(connection: Connection, *, now_ms: int, keep: int) -> None:
    newest_first = func.row_number().over(partition_by=_ROW.task_id, order_by=_ROW.position.desc())
    ended = (
        select(_ROW.position, _ROW.ended_ms, newest_first.label("place"))
        .where(_ROW.state.in_(ENDED))
        .subquery("ended")
    )
    is_old = or_(ended.c.ended_ms < now_ms - KEEP_ENDED_MS, ended.c.place > keep)
    old = select(ended.c.position).where(is_old)
    connection.execute(delete(INVOCATION_LINES).where(INVOCATION_LINES.c.invocation.in_(old)))
    connection.execute(delete(INVOCATIONS).where(_ROW.position.in_(old)))


def _lock_next(connection: Connection, limit: int) -> list[Row[Any]]:
    """Lock the next in the queue. Rows that another claimer has locked are skipped, not waited for."""
    # Sorted here: a planner that misjudges how many rows there are takes a hundred times as long.
    queued = select(_ROW.position, _ROW.task_id).where(_ROW.state == "queued").order_by(_ROW.position)
    running = (
        select(_ROW.task_id, func.count().label("running"))
        .where(_ROW.state == "running")
        .group_by(_ROW.task_id)
    )
    counts = {row.task_id: row.running for row in connection.execute(running)}
    waiting = order_fairly(((task_id, position) for position, task_id in connection.execute(queued)), counts)
    locked: list[Row[Any]] = []
    while waiting and len(locked) < limit:
        batch, waiting = waiting[: limit - len(locked)], waiting[limit - len(locked) :]
        # The state again: another claimer may have taken it since.
        query = select(*_WITH_INPUT).where(_ROW.position.in_(batch), _ROW.state == "queued")
        rows = {row.position: row for row in connection.execute(query.with_for_update(skip_locked=True))}
        locked += [rows[position] for position in batch if position in rows]
    return locked


def _lock(connection: Connection, invocation_id: str) -> tuple[int, InvocationEntry | None]:
    query = select(*_LIGHT).where(_ROW.id == invocation_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return (0, None) if row is None else (row.position, _entry(row))


def _read_earlier(connection: Connection, new: Invocation) -> InvocationCreation | None:
    """Return the invocation that has the idempotency key already. Raises Conflict if its input differs."""
    if new.idempotency_key is None:
        return None
    query = select(_ROW.id, _ROW.input_digest).where(
        _ROW.principal_id == new.principal.id,
        _ROW.task_id == new.task_id,
        _ROW.idempotency_key == new.idempotency_key,
    )
    row = connection.execute(query).one_or_none()
    earlier = None if row is None else _read_invocation(connection, row.id)
    if row is None or earlier is None:
        return None
    if row.input_digest != _input_digest(new.input):
        raise Conflict(
            f"the key `{earlier.idempotency_key}` was used with another input before",
            hint="give each call its own key, and repeat a call with the same input",
        )
    return InvocationCreation(earlier, is_new=False)


def _append(connection: Connection, position: int, lines: Sequence[LogLine]) -> None:
    kept, table = keep_newest_lines(lines), INVOCATION_LINES.c
    rows = [{"invocation": position, "seq": line.seq, "body": encode_line(line)} for line in kept]
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
    # The output has its own columns, so that a list does not read it.
    light = _encode(replace(ending, stdout=b"", stderr=b""))
    return {**columns, "ending": light, "stdout": ending.stdout, "stderr": ending.stderr}


def _entry(row: Row[Any]) -> InvocationEntry:
    """Decode a row without its large columns."""
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
