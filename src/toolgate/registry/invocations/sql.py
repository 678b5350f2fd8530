"""The queue of invocations in SQL, the same for every engine.

Claimers at several replicas claim different rows at once: each locks its rows and skips locked ones. SQLite
has one writer, and nothing to skip.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Row, delete, func, select

from toolgate.errors import Conflict, NotFound, QueueFull, ToolgateError
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    Invocation,
    InvocationResult,
    LogLine,
)
from toolgate.model.principals import Principal
from toolgate.registry import invocations as rules
from toolgate.registry.database.tables import INVOCATION_LINES, INVOCATIONS, insert_new, pick_fields
from toolgate.registry.database.transactions import ChangeCounter, SharedTable, Topic, transaction
from toolgate.registry.invocations import InvocationCreation, InvocationEntry, LeaseVerdict

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_principal: Final = msgspec.msgpack.Decoder(Principal).decode
_decode_ending: Final = msgspec.msgpack.Decoder(InvocationResult).decode
_decode_line: Final = msgspec.msgpack.Decoder(LogLine).decode
_ROW: Final = INVOCATIONS.c
_LIGHT: Final = [column for column in _ROW if column.name not in {"input", "stdout", "stderr"}]
_WITH_INPUT: Final[Sequence[sa.ColumnElement[Any]]] = [*_LIGHT, _ROW.input]
_EXPIRED: Final = (_ROW.state == "running") & (_ROW.lease_until_ms < sa.bindparam("now_ms"))
# Columns that have the field of the same name.
_CREATED: Final = ("task_id", "revision", "created_ms", "retries", "idempotency_key")
_STATE: Final = "state", "attempt", "node_id", "started_ms", "lease_until_ms", "is_cancel_asked", "ended_ms"
_COUNTS: Final = ("losses", "heard", "lines")


@dataclass(eq=False)
class Invocations(SharedTable):
    """The queue and its history, shared by every replica on one database. An `InvocationQueue`."""

    limits: rules.QueueLimits = rules.DEFAULT_QUEUE_LIMITS
    _count: ChangeCounter = field(default_factory=ChangeCounter, init=False)
    _queued: ChangeCounter = field(default_factory=ChangeCounter, init=False)
    _up_since_ms: int | None = field(default=None, init=False)
    """Since when the database has responded to every claim. Before that, reports of nodes may have failed,
    too."""

    @transaction("queue")
    def create(self, connection: Connection, invocation: Invocation) -> InvocationCreation:
        """Queue a new invocation. Raises QueueFull, and Conflict for a known id.

        An idempotency key holds for one principal and one task while the invocation is kept: the same input
        returns the earlier invocation, another input is a Conflict.
        """
        if (earlier := _read_earlier(connection, invocation)) is not None:
            return earlier
        if (queued := _count_queued(connection)) >= self.limits.max_queued:
            raise QueueFull(f"{queued} invocations are already queued")
        # Two replicas may get the same idempotency key at once: then one of them inserts nothing.
        if insert_new(connection, INVOCATIONS, [_new_row(invocation)]):
            return InvocationCreation(invocation, is_new=True)
        if (earlier := _read_earlier(connection, invocation)) is not None:
            return earlier
        raise Conflict(f"duplicate invocation `{invocation.invocation_id}`")

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
                async with asyncio.timeout(min(left_s, self.limits.poll_s)):
                    await self._queued.changed(seen)

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        def record(connection: Connection) -> tuple[LeaseVerdict, bool]:
            """Return the verdict, and whether the invocation is queued again."""
            now_ms = self.read_clock_ms(connection)
            position, entry = _lock(connection, invocation_id)
            if entry is None:
                return "lost", False
            effect = rules.apply_report(entry, attempt, lines=lines, ending=ending, now_ms=now_ms)
            if effect is None:
                return "lost", False
            _store(connection, [(position, effect.entry)])
            if effect.lines:
                _append(connection, position, effect.lines)
            return effect.verdict, effect.entry.invocation.state == "queued"

        topic: Topic = "runs" if lines or ending else "leases"
        then = partial(self.on_change, topic)
        verdict: LeaseVerdict
        verdict, is_queued = await self.transactions.change(record, then=then, topic=topic)
        if is_queued:
            self._queued.increment()
        return verdict

    @transaction("runs")
    def cancel(self, connection: Connection, invocation_id: str) -> Invocation:
        """End a queued invocation, or request the end of a running one. Raises NotFound."""
        now_ms = self.read_clock_ms(connection)
        position, entry = _lock(connection, invocation_id)
        if entry is None:
            raise NotFound(f"no invocation `{invocation_id}`")
        after = rules.cancel_entry(entry, now_ms)
        if after is not entry:
            _store(connection, [(position, after)])
        found = _read_invocation(connection, _ROW.id == invocation_id)
        assert found is not None  # its row is locked
        return found

    @transaction()
    def get(self, connection: Connection, invocation_id: str) -> Invocation | None:
        return _read_invocation(connection, _ROW.id == invocation_id)

    @transaction()
    def list(
        self,
        connection: Connection,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        """Return invocations, newest first, without inputs and outputs. `before`: the last id seen."""
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

    @transaction()
    def marks(self, connection: Connection, ids: Collection[str]) -> Mapping[str, rules.InvocationProgress]:
        """Return the progress of the existing ones, in one query."""
        query = select(_ROW.id, _ROW.state, _ROW.attempt, _ROW.lines).where(_ROW.id.in_(ids))
        return {known: rules.InvocationProgress(*found) for known, *found in connection.execute(query)}

    @transaction()
    def waiting(self, connection: Connection) -> int:
        return _count_queued(connection)

    @transaction()
    def lines(
        self, connection: Connection, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        """Return the log after the line `after`, oldest first. Only its newest lines are kept."""
        lines = INVOCATION_LINES.c
        position = select(_ROW.position).where(_ROW.id == invocation_id).scalar_subquery()
        query = select(lines.seq, lines.body).where(lines.invocation == position, lines.seq > after)
        rows = connection.execute(query.order_by(lines.seq).limit(limit))
        return [replace(_decode_line(row.body), seq=row.seq) for row in rows]

    @transaction("leases")
    def forget(self, connection: Connection, *, now_ms: int) -> None:
        """Delete invocations that ended long ago, and the oldest if a task has too many."""
        newest_first = func.row_number().over(partition_by=_ROW.task_id, order_by=_ROW.position.desc())
        placed = select(_ROW.position, _ROW.ended_ms, newest_first.label("place"))
        ended = placed.where(_ROW.state.in_(ENDED)).subquery("ended").c
        is_old = (ended.ended_ms < now_ms - rules.KEEP_ENDED_MS) | (ended.place > self.limits.keep_ended)
        old = select(ended.position).where(is_old)
        connection.execute(delete(INVOCATION_LINES).where(INVOCATION_LINES.c.invocation.in_(old)))
        connection.execute(delete(INVOCATIONS).where(_ROW.position.in_(old)))

    async def changed(self, seen: int) -> int:
        """Wait for a change by any replica; see `ChangeCounter`. Renewing a lease is no change."""
        return await self._count.changed(seen)

    def wake(self, *, is_queued: bool) -> None:
        """Wake waiting tasks after a change here or by another replica."""
        self._count.increment()
        if is_queued:
            self._queued.increment()

    def close(self) -> None:
        """End every wait."""
        self._count.close()
        self._queued.close()

    def on_change(self, topic: Topic, result: object) -> None:  # noqa: ARG002 (the topic says enough)
        if topic != "leases":
            self.wake(is_queued=topic == "queue")

    async def _claim(self, node_id: str, limit: int) -> Sequence[Invocation]:
        # Read first: a claimer that waits writes nothing and wakes no other.
        try:
            now_ms, has_queued, has_expired = await self._read_queue_state()
        except ToolgateError:
            self._up_since_ms = None
            raise
        if self._up_since_ms is None:
            self._up_since_ms = now_ms
        ends_leases = has_expired and now_ms - self._up_since_ms >= rules.LEASE_MS
        if not (ends_leases or (has_queued and limit)):
            return ()
        return await self._lease(node_id, limit, ends_leases=ends_leases)

    @transaction()
    def _read_queue_state(self, connection: Connection) -> tuple[int, bool, bool]:
        """Return the time, whether invocations are queued, and whether leases have expired."""
        now_ms = self.read_clock_ms(connection)
        query = select(sa.exists().where(_ROW.state == "queued"), sa.exists().where(_EXPIRED))
        has_queued, has_expired = connection.execute(query, {"now_ms": now_ms}).one()
        return now_ms, has_queued, has_expired

    @transaction("runs")
    def _lease(
        self, connection: Connection, node_id: str, limit: int, *, ends_leases: bool
    ) -> Sequence[Invocation]:
        now_ms = self.read_clock_ms(connection)
        if ends_leases:
            lost = select(*_LIGHT).where(_EXPIRED).with_for_update(skip_locked=True)
            rows = connection.execute(lost, {"now_ms": now_ms}).all()
            _store(connection, ((row.position, rules.expire_lease(_entry(row), now_ms)) for row in rows))
        rows = _lock_next(connection, limit)
        leased = [rules.lease_entry(_entry(row), node_id=node_id, now_ms=now_ms) for row in rows]
        _store(connection, ((row.position, entry) for row, entry in zip(rows, leased, strict=True)))
        return [replace(one.invocation, input=row.input) for row, one in zip(rows, leased, strict=True)]


def _count_queued(connection: Connection) -> int:
    queued = select(func.count()).select_from(INVOCATIONS).where(_ROW.state == "queued")
    return int(connection.execute(queued).scalar_one())


def _read_invocation(connection: Connection, *where: sa.ColumnElement[bool]) -> Invocation | None:
    row = connection.execute(select(INVOCATIONS).where(*where)).one_or_none()
    if row is None:
        return None
    known = _entry(row).invocation
    ending = known.ending
    if ending is not None:
        ending = replace(ending, stdout=row.stdout or b"", stderr=row.stderr or b"")
    return replace(known, input=row.input, ending=ending)


def _lock_next(connection: Connection, limit: int) -> list[Row[Any]]:
    """Lock the next in the queue. Rows that another claimer has locked are skipped, not waited for."""
    # Sorted here: a planner that misjudges the number of rows takes a hundred times as long.
    queued = select(_ROW.position, _ROW.task_id).where(_ROW.state == "queued").order_by(_ROW.position)
    running = select(_ROW.task_id, func.count().label("many")).where(_ROW.state == "running")
    counts = {row.task_id: row.many for row in connection.execute(running.group_by(_ROW.task_id))}
    waiting = rules.order_fairly([(row.task_id, row.position) for row in connection.execute(queued)], counts)
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
    """Return the earlier invocation with the idempotency key. Raises Conflict if its input differs."""
    if new.idempotency_key is None:
        return None
    earlier = _read_invocation(
        connection,
        _ROW.principal_id == new.principal.id,
        _ROW.task_id == new.task_id,
        _ROW.idempotency_key == new.idempotency_key,
    )
    if earlier is None:
        return None
    if earlier.input != new.input:
        raise Conflict(
            f"the idempotency key `{earlier.idempotency_key}` was used with another input before",
            hint="use a new key for each call, and repeat a call with the same input",
        )
    return InvocationCreation(earlier, is_new=False)


def _append(connection: Connection, position: int, lines: Sequence[LogLine]) -> None:
    kept, table = rules.keep_newest_lines(lines), INVOCATION_LINES.c
    rows = [{"invocation": position, "seq": line.seq, "body": rules.encode_line(line)} for line in kept]
    connection.execute(sa.insert(INVOCATION_LINES), rows)
    since = func.sum(func.length(table.body)).over(order_by=table.seq.desc())
    log = select(table.seq, since.label("size")).where(table.invocation == position).subquery("log")
    too_much = select(func.max(log.c.seq)).where(log.c.size > MAX_LOG_BYTES)
    last_old = max(kept[-1].seq - MAX_LOG_LINES, connection.execute(too_much).scalar_one() or 0)
    connection.execute(delete(INVOCATION_LINES).where(table.invocation == position, table.seq <= last_old))


def _store(connection: Connection, entries: Iterable[tuple[int, InvocationEntry]]) -> None:
    for position, entry in entries:
        connection.execute(
            sa.update(INVOCATIONS).where(_ROW.position == position).values(**_state_columns(entry))
        )


def _new_row(invocation: Invocation) -> dict[str, Any]:
    return {
        **pick_fields(invocation, _CREATED),
        "id": invocation.invocation_id,
        "principal_id": invocation.principal.id,
        "principal": _encode(invocation.principal),
        "input_digest": sha256(invocation.input).hexdigest(),
        "input": invocation.input,
        **_state_columns(InvocationEntry(invocation=invocation)),
    }


def _state_columns(entry: InvocationEntry) -> dict[str, Any]:
    columns = pick_fields(entry.invocation, _STATE) | pick_fields(entry, _COUNTS)
    ending = entry.invocation.ending
    if ending is None:
        return columns
    # The output has its own columns, so that a list does not read it.
    light = _encode(replace(ending, stdout=b"", stderr=b""))
    return {**columns, "ending": light, "stdout": ending.stdout, "stderr": ending.stderr}


def _entry(row: Row[Any]) -> InvocationEntry:
    """Decode a row without its large columns."""
    invocation = Invocation(
        invocation_id=row.id,
        principal=_decode_principal(row.principal),
        input=b"",
        ending=None if row.ending is None else _decode_ending(row.ending),
        **pick_fields(row, _CREATED),
        **pick_fields(row, _STATE),
    )
    return InvocationEntry(invocation=invocation, **pick_fields(row, _COUNTS))
