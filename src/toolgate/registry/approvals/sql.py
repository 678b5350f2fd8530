"""Approvals in SQL: each function is one transaction's work, the same for every engine.

Whoever asks locks the one row that is open for its binding. Those who come at once stand in line there, and
each sees what the one before it has left.

Approvals over the table beside the records, for the event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, or_, select, text, update

from toolgate.errors import StorageUnavailable
from toolgate.model.approvals import ApprovalRequest, ApprovalState, CallApproval
from toolgate.registry.approvals import contract as steps
from toolgate.registry.approvals.contract import (
    KEEP_CLOSED,
    ROUND_MS,
    ApprovalEntry,
    ApprovalVerdict,
    ElicitedDecision,
)
from toolgate.registry.database.tables import APPROVALS
from toolgate.registry.database.transactions import Transactions

_ROW: Final = APPROVALS.c
_QUESTION: Final = tuple(name for name in ApprovalRequest.__slots__ if name != "round")
_WAITING: Final = ("pending", "approved")
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalFilter:
    """Which approvals are listed."""

    state: ApprovalState | None
    before: str | None
    limit: int


def answer_question(
    connection: Connection, question: ApprovalRequest, new_id: str, *, now_ms: int
) -> ApprovalVerdict:
    """See `Desk.ask`."""
    if question.round and (begun := _continue_call(connection, question, now_ms)) is not None:
        return begun
    for _ in range(_TRIES):
        query = select(APPROVALS).where(_ROW.open_binding == question.binding).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is not None:
            entry = _entry(row)
            answered = steps.answer_again(entry, now_ms)
            if answered.entry is not entry:  # who asks again and again has nothing written
                _store(connection, answered.entry)
            if answered.verdict is not None:
                return answered.verdict
        if not _has_room(connection, question.principal, now_ms):
            return ApprovalVerdict("full")
        entry = steps.open_entry(question, new_id=new_id, now_ms=now_ms)
        if _insert(connection, entry):
            return steps.make_verdict(entry.approval, "asked")
        if row is None and _has_id(connection, new_id):
            raise steps.duplicate_approval(new_id)
        # Somebody has asked the same at this moment: what came of that is read.
    raise StorageUnavailable("others keep asking the same")


def settle_question(
    connection: Connection, question: ApprovalRequest, said: ElicitedDecision, new_id: str, *, now_ms: int
) -> ApprovalVerdict:
    """See `Desk.settle`."""
    query = select(APPROVALS).where(_ROW.open_binding == question.binding, _ROW.id == said.approval_id)
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is not None:
        settled = steps.apply_elicited(_entry(row), said, now_ms)
        _store(connection, settled.entry)
        if settled.verdict is not None:
            return settled.verdict
    elif not said.is_approved:
        return steps.declined_verdict(said)
    return answer_question(connection, question, new_id, now_ms=now_ms)


def decide_approval(
    connection: Connection, approval_id: str, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> CallApproval:
    """See `Approvals.decide`."""
    query = select(APPROVALS).where(_ROW.id == approval_id).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise steps.approval_not_found(approval_id)
    after = steps.decide_entry(_entry(row), is_approved=is_approved, by=by, reason=reason, now_ms=now_ms)
    _store(connection, after)
    return after.approval


def read_approval(connection: Connection, approval_id: str, *, now_ms: int) -> CallApproval | None:
    """See `Approvals.get`."""
    row = connection.execute(select(APPROVALS).where(_ROW.id == approval_id)).one_or_none()
    return None if row is None else steps.as_of(_approval(row), now_ms)


def read_approvals(connection: Connection, wanted: ApprovalFilter, *, now_ms: int) -> Sequence[CallApproval]:
    """See `Approvals.list`."""
    query = select(APPROVALS).order_by(_ROW.position.desc()).limit(wanted.limit)
    if wanted.state == "expired":
        query = query.where(or_(_ROW.state == "expired", _is_expired(now_ms)))
    elif wanted.state in _WAITING:
        query = query.where(_ROW.state == wanted.state, _ROW.expires_ms > now_ms)
    elif wanted.state is not None:
        query = query.where(_ROW.state == wanted.state)
    if wanted.before is not None:
        last = APPROVALS.alias("last")
        query = query.where(
            _ROW.position < select(last.c.position).where(last.c.id == wanted.before).scalar_subquery()
        )
    return [steps.as_of(_approval(row), now_ms) for row in connection.execute(query)]


def count_pending(connection: Connection, principal: str | None = None, *, now_ms: int) -> int:
    """See `Approvals.pending`; of one principal, where one is named."""
    query = select(func.count()).select_from(APPROVALS)
    query = query.where(_ROW.state == "pending", _ROW.expires_ms > now_ms)
    if principal is not None:
        query = query.where(_ROW.principal == principal)
    return int(connection.execute(query).scalar_one())


def has_expired(connection: Connection, *, now_ms: int) -> bool:
    """Whether `expire_approvals` would find any."""
    return bool(connection.execute(select(exists().where(_is_expired(now_ms)))).scalar_one())


def expire_approvals(connection: Connection, *, now_ms: int) -> Sequence[CallApproval]:
    """See `Approvals.expire`."""
    query = select(APPROVALS).where(_is_expired(now_ms)).order_by(_ROW.position)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    ended = [steps.as_of(_approval(row), now_ms) for row in rows]
    for row, one in zip(rows, ended, strict=True):
        _store(connection, _entry(row)._replace(approval=one, is_open=False))
    return ended


def has_notices(connection: Connection, *, now_ms: int) -> bool:
    """Whether `claim_notices` would find any."""
    return bool(connection.execute(select(exists().where(_needs_notice(now_ms)))).scalar_one())


def claim_notices(connection: Connection, *, limit: int, now_ms: int) -> Sequence[CallApproval]:
    """See `Approvals.claim_notices`."""
    query = select(APPROVALS).where(_needs_notice(now_ms)).order_by(_ROW.position).limit(limit)
    given = [
        steps.schedule_notice(_entry(row), now_ms)
        for row in connection.execute(query.with_for_update(skip_locked=True))
    ]
    for entry in given:
        _store(connection, entry)
    return [entry.approval for entry in given]


def mark_notified(connection: Connection, approval_id: str, *, now_ms: int) -> None:
    """See `Approvals.noticed`."""
    connection.execute(update(APPROVALS).where(_ROW.id == approval_id).values(notified_ms=now_ms))


def forget_approvals(connection: Connection, *, now_ms: int) -> None:
    """See `Approvals.forget`."""
    place = func.row_number().over(order_by=_ROW.position.desc())
    closed = (
        select(_ROW.position, _ROW.created_ms, place.label("place"))
        .where(_ROW.state.not_in(_WAITING))
        .subquery("closed")
    )
    is_old = or_(closed.c.created_ms < steps.retention_cutoff_ms(now_ms), closed.c.place > KEEP_CLOSED)
    connection.execute(delete(APPROVALS).where(_ROW.position.in_(select(closed.c.position).where(is_old))))


def _continue_call(connection: Connection, question: ApprovalRequest, now_ms: int) -> ApprovalVerdict | None:
    query = select(APPROVALS).where(
        _ROW.binding == question.binding, _ROW.state == "used", _ROW.used_ms > now_ms - ROUND_MS
    )
    for row in connection.execute(query.order_by(_ROW.position).with_for_update()).all():
        used = _approval(row)
        if steps.continues_call(used, question, now_ms):
            _store(connection, _entry(row)._replace(approval=steps.count_round(used)))
            return steps.make_verdict(used, "granted")
    return None


def _has_room(connection: Connection, principal: str, now_ms: int) -> bool:
    own = count_pending(connection, principal, now_ms=now_ms)
    return steps.has_room(own=own, all_pending=count_pending(connection, now_ms=now_ms))


def _is_expired(now_ms: int) -> ColumnElement[bool]:
    return _ROW.state.in_(_WAITING) & (_ROW.expires_ms <= now_ms)


def _needs_notice(now_ms: int) -> ColumnElement[bool]:
    is_due = _ROW.notified_ms.is_(None) & (_ROW.notice_ms <= now_ms)
    return (_ROW.state == "pending") & (_ROW.expires_ms > now_ms) & is_due


def _has_id(connection: Connection, approval_id: str) -> bool:
    return bool(connection.execute(select(exists().where(_ROW.id == approval_id))).scalar_one())


def _insert(connection: Connection, entry: ApprovalEntry) -> bool:
    """Whether it is stored: another one may be open for the same binding by now."""
    approval = entry.approval
    row = {
        **{name: getattr(approval.question, name) for name in _QUESTION},
        "id": approval.approval_id,
        "binding": approval.question.binding,
        "created_ms": approval.created_ms,
        **_state_columns(entry),
    }
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    # One statement that both engines know.
    stored = connection.execute(
        text(
            f"INSERT INTO approvals ({names}) VALUES ({values}) "  # noqa: S608 (names of columns)
            "ON CONFLICT DO NOTHING"
        ),
        row,
    )
    return bool(stored.rowcount)


def _store(connection: Connection, entry: ApprovalEntry) -> None:
    connection.execute(
        update(APPROVALS).where(_ROW.id == entry.approval.approval_id).values(**_state_columns(entry))
    )


def _state_columns(entry: ApprovalEntry) -> dict[str, Any]:
    known = asdict(entry.approval)
    names = ("state", "expires_ms", "decided_by", "decided_ms", "reason", "used_ms", "rounds")
    open_binding = entry.approval.question.binding if entry.is_open else None
    return {
        **{name: known[name] for name in names},
        "open_binding": open_binding,
        "notices": entry.notices,
        "notice_ms": entry.notice_ms,
        "notified_ms": entry.notified_ms,
    }


def _entry(row: Row[Any]) -> ApprovalEntry:
    return ApprovalEntry(
        _approval(row),
        is_open=row.open_binding is not None,
        notices=row.notices,
        notice_ms=row.notice_ms,
        notified_ms=row.notified_ms,
    )


def _approval(row: Row[Any]) -> CallApproval:
    return CallApproval(
        approval_id=row.id,
        question=ApprovalRequest(**{name: getattr(row, name) for name in _QUESTION}),
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        state=row.state,
        decided_by=row.decided_by,
        decided_ms=row.decided_ms,
        reason=row.reason,
        used_ms=row.used_ms,
        rounds=row.rounds,
    )


T = TypeVar("T")


class SqlApprovals:
    """Approvals as every replica on one database sees them; `read_clock_ms` is the clock they all go by."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms

    async def ask(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
        return await self._change(partial(answer_question, question=question, new_id=new_id))

    async def settle(
        self, question: ApprovalRequest, said: ElicitedDecision, *, new_id: str
    ) -> ApprovalVerdict:
        return await self._change(partial(settle_question, question=question, said=said, new_id=new_id))

    async def decide(self, approval_id: str, *, is_approved: bool, by: str, reason: str) -> CallApproval:
        return await self._change(
            partial(decide_approval, approval_id=approval_id, is_approved=is_approved, by=by, reason=reason)
        )

    async def get(self, approval_id: str) -> CallApproval | None:
        return await self._read(partial(read_approval, approval_id=approval_id))

    async def list(
        self, *, state: ApprovalState | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[CallApproval]:
        wanted = ApprovalFilter(state=state, before=before, limit=limit)
        return await self._read(partial(read_approvals, wanted=wanted))

    async def pending(self) -> int:
        return await self._read(count_pending)

    async def expire(self) -> Sequence[CallApproval]:
        # Looked at first: where there is nothing to do, nothing is written.
        return await self._change(expire_approvals) if await self._read(has_expired) else ()

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        return (
            await self._change(partial(claim_notices, limit=limit)) if await self._read(has_notices) else ()
        )

    async def noticed(self, approval_id: str) -> None:
        await self._change(partial(mark_notified, approval_id=approval_id))

    async def forget(self) -> None:
        await self._change(forget_approvals)

    async def _read(self, work: Callable[..., T]) -> T:
        return await self._transactions.read(
            lambda connection: work(connection, now_ms=self._read_clock_ms(connection))
        )

    async def _change(self, work: Callable[..., T]) -> T:
        return await self._transactions.change(
            lambda connection: work(connection, now_ms=self._read_clock_ms(connection)),
            topic="approvals",
        )
