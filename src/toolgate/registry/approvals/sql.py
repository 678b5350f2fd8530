"""Approvals in SQL, the same for every engine.

A request locks the one open row of its binding. Concurrent requests queue there, and each sees what the one
before it wrote.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, or_, select, update

from toolgate.errors import Conflict, StorageUnavailable
from toolgate.model.approvals import ApprovalRequest, ApprovalState, CallApproval
from toolgate.registry.approvals.contract import (
    DEFAULT_APPROVAL_LIMITS,
    EXPIRES_MS,
    KEEP_CLOSED_MS,
    ROUND_MS,
    ApprovalEntry,
    ApprovalLimits,
    ApprovalVerdict,
    ElicitedDecision,
    answer_again,
    apply_elicited,
    approval_not_found,
    as_of,
    continues_call,
    decide_entry,
    decline,
    make_verdict,
    schedule_notice,
)
from toolgate.registry.database.tables import APPROVALS, insert_new
from toolgate.registry.database.transactions import SharedTable, Transactions

_ROW: Final = APPROVALS.c
_REQUEST: Final = tuple(name for name in ApprovalRequest.__slots__ if name != "round")
_WAITING: Final = ("pending", "approved")
_TRIES: Final = 5
"""Each failure means that another caller made the same request at this moment."""


class Approvals(SharedTable):
    """All approvals, as every control plane replica on one database sees them. An `ApprovalService`."""

    def __init__(
        self,
        transactions: Transactions,
        read_clock_ms: Callable[[Connection], int],
        limits: ApprovalLimits = DEFAULT_APPROVAL_LIMITS,
    ) -> None:
        super().__init__(transactions, read_clock_ms)
        self._limits = limits

    async def ask(self, request: ApprovalRequest, /, *, new_id: str) -> ApprovalVerdict:
        return await self._change(self._request, "approvals", request=request, new_id=new_id)

    async def settle(
        self, request: ApprovalRequest, decision: ElicitedDecision, /, *, new_id: str
    ) -> ApprovalVerdict:
        return await self._change(
            self._settle, "approvals", request=request, decision=decision, new_id=new_id
        )

    async def decide(self, approval_id: str, *, is_approved: bool, by: str, reason: str) -> CallApproval:
        """Decide a pending approval. Raises NotFound, and Conflict if it is no longer pending.

        An approved call may be sent within `EXPIRES_MS` from now on.
        """
        return await self._change(
            _decide, "approvals", approval_id=approval_id, is_approved=is_approved, by=by, reason=reason
        )

    async def get(self, approval_id: str) -> CallApproval | None:
        """Return one approval, or None."""
        return await self._read(_read_approval, approval_id=approval_id)

    async def list(
        self, *, state: ApprovalState | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[CallApproval]:
        """Return approvals, newest first. `before`: the id of the last one seen."""
        return await self._read(_list_approvals, state=state, before=before, limit=limit)

    async def pending(self) -> int:
        """Count the pending approvals."""
        return await self._read(_count_pending)

    async def expire(self) -> Sequence[CallApproval]:
        """Close the approvals that expired since the last call. Returns each once."""
        # Read first: if there is nothing to do, nothing is written.
        if not await self._read(_has_any, condition=_is_expired):
            return ()
        return await self._change(_expire, "approvals")

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        """Claim pending approvals whose notice is due, oldest first.

        Each is returned to one caller, and again after a growing delay, until `mark_notified`.
        """
        if not await self._read(_has_any, condition=_needs_notice):
            return ()
        return await self._change(_claim_notices, "approvals", limit=limit)

    async def mark_notified(self, approval_id: str) -> None:
        """Record that the notice was delivered, so that no one sends it again."""
        await self._change(_mark_notified, "approvals", approval_id=approval_id)

    async def forget(self) -> None:
        """Delete approvals that were closed long ago, and the oldest of too many."""
        await self._change(_forget, "approvals", keep=self._limits.keep_closed)

    def _request(
        self, connection: Connection, request: ApprovalRequest, new_id: str, now_ms: int
    ) -> ApprovalVerdict:
        if request.round and (verdict := _continue_call(connection, request, now_ms)) is not None:
            return verdict
        for _ in range(_TRIES):
            query = select(APPROVALS).where(_ROW.open_binding == request.binding).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is not None:
                entry = _entry(row)
                after, known = answer_again(entry, now_ms)
                if after is not entry:  # a repeated request writes nothing
                    _store(connection, after)
                if known is not None:
                    return known
            if not self._has_room(connection, request.principal, now_ms):
                return ApprovalVerdict("full")
            new = CallApproval(
                approval_id=new_id, question=request, created_ms=now_ms, expires_ms=now_ms + EXPIRES_MS
            )
            if _insert(connection, ApprovalEntry(new)):
                return make_verdict(new, "asked")
            if row is None and _read_row(connection, new_id) is not None:
                raise Conflict(f"duplicate approval `{new_id}`")
            # Another caller made the same request at this moment: read what came of it.
        raise StorageUnavailable("too many concurrent requests for the same approval")

    def _settle(
        self,
        connection: Connection,
        request: ApprovalRequest,
        decision: ElicitedDecision,
        new_id: str,
        now_ms: int,
    ) -> ApprovalVerdict:
        query = select(APPROVALS).where(_ROW.open_binding == request.binding, _ROW.id == decision.approval_id)
        row = connection.execute(query.with_for_update()).one_or_none()
        if row is not None:
            after, verdict = apply_elicited(_entry(row), decision, now_ms)
            _store(connection, after)
            if verdict is not None:
                return verdict
        elif not decision.is_approved:
            return decline(decision)
        return self._request(connection, request, new_id, now_ms)

    def _has_room(self, connection: Connection, principal: str, now_ms: int) -> bool:
        own = _count_pending(connection, principal, now_ms=now_ms)
        everyone = _count_pending(connection, now_ms=now_ms)
        return own < self._limits.max_pending_each and everyone < self._limits.max_pending


def _decide(
    connection: Connection, approval_id: str, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> CallApproval:
    query = select(APPROVALS).where(_ROW.id == approval_id).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise approval_not_found(approval_id)
    after = decide_entry(_entry(row), is_approved=is_approved, by=by, reason=reason, now_ms=now_ms)
    _store(connection, after)
    return after.approval


def _read_row(connection: Connection, approval_id: str) -> Row[Any] | None:
    return connection.execute(select(APPROVALS).where(_ROW.id == approval_id)).one_or_none()


def _read_approval(connection: Connection, approval_id: str, *, now_ms: int) -> CallApproval | None:
    row = _read_row(connection, approval_id)
    return None if row is None else as_of(_approval(row), now_ms)


def _list_approvals(
    connection: Connection, *, state: ApprovalState | None, before: str | None, limit: int, now_ms: int
) -> Sequence[CallApproval]:
    query = select(APPROVALS).order_by(_ROW.position.desc()).limit(limit)
    if state == "expired":
        query = query.where(or_(_ROW.state == "expired", _is_expired(now_ms)))
    elif state in _WAITING:
        query = query.where(_ROW.state == state, _ROW.expires_ms > now_ms)
    elif state is not None:
        query = query.where(_ROW.state == state)
    if before is not None:
        last = APPROVALS.alias("last")
        position = select(last.c.position).where(last.c.id == before).scalar_subquery()
        query = query.where(_ROW.position < position)
    return [as_of(_approval(row), now_ms) for row in connection.execute(query)]


def _count_pending(connection: Connection, principal: str | None = None, *, now_ms: int) -> int:
    """Count those of one principal, or all."""
    query = select(func.count()).select_from(APPROVALS)
    query = query.where(_ROW.state == "pending", _ROW.expires_ms > now_ms)
    if principal is not None:
        query = query.where(_ROW.principal == principal)
    return int(connection.execute(query).scalar_one())


def _has_any(connection: Connection, condition: Callable[[int], ColumnElement[bool]], now_ms: int) -> bool:
    return bool(connection.execute(select(exists().where(condition(now_ms)))).scalar_one())


def _is_expired(now_ms: int) -> ColumnElement[bool]:
    return _ROW.state.in_(_WAITING) & (_ROW.expires_ms <= now_ms)


def _needs_notice(now_ms: int) -> ColumnElement[bool]:
    is_due = _ROW.notified_ms.is_(None) & (_ROW.notice_ms <= now_ms)
    return (_ROW.state == "pending") & (_ROW.expires_ms > now_ms) & is_due


def _expire(connection: Connection, now_ms: int) -> Sequence[CallApproval]:
    query = select(APPROVALS).where(_is_expired(now_ms)).order_by(_ROW.position)
    expired = []
    for row in connection.execute(query.with_for_update(skip_locked=True)).all():
        expired.append(as_of(_approval(row), now_ms))
        _store(connection, _entry(row)._replace(approval=expired[-1], is_open=False))
    return expired


def _claim_notices(connection: Connection, *, limit: int, now_ms: int) -> Sequence[CallApproval]:
    query = select(APPROVALS).where(_needs_notice(now_ms)).order_by(_ROW.position).limit(limit)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    claimed = [schedule_notice(_entry(row), now_ms) for row in rows]
    for entry in claimed:
        _store(connection, entry)
    return [entry.approval for entry in claimed]


def _mark_notified(connection: Connection, approval_id: str, *, now_ms: int) -> None:
    connection.execute(update(APPROVALS).where(_ROW.id == approval_id).values(notified_ms=now_ms))


def _forget(connection: Connection, *, keep: int, now_ms: int) -> None:
    place = func.row_number().over(order_by=_ROW.position.desc())
    closed = (
        select(_ROW.position, _ROW.created_ms, place.label("place"))
        .where(_ROW.state.not_in(_WAITING))
        .subquery("closed")
    )
    is_old = or_(closed.c.created_ms < now_ms - KEEP_CLOSED_MS, closed.c.place > keep)
    connection.execute(delete(APPROVALS).where(_ROW.position.in_(select(closed.c.position).where(is_old))))


def _continue_call(connection: Connection, request: ApprovalRequest, now_ms: int) -> ApprovalVerdict | None:
    query = select(APPROVALS).where(
        _ROW.binding == request.binding, _ROW.state == "used", _ROW.used_ms > now_ms - ROUND_MS
    )
    for row in connection.execute(query.order_by(_ROW.position).with_for_update()).all():
        used = _approval(row)
        if continues_call(used, request, now_ms):
            connection.execute(
                update(APPROVALS).where(_ROW.id == used.approval_id).values(rounds=request.round)
            )
            return make_verdict(used, "granted")
    return None


def _insert(connection: Connection, entry: ApprovalEntry) -> bool:
    """Returns whether it is stored: another approval may be open for the same binding by now."""
    approval = entry.approval
    row = {
        **{name: getattr(approval.question, name) for name in _REQUEST},
        "id": approval.approval_id,
        "binding": approval.question.binding,
        "created_ms": approval.created_ms,
        **_state_columns(entry),
    }
    return bool(insert_new(connection, APPROVALS, [row]))


def _store(connection: Connection, entry: ApprovalEntry) -> None:
    connection.execute(
        update(APPROVALS).where(_ROW.id == entry.approval.approval_id).values(**_state_columns(entry))
    )


def _state_columns(entry: ApprovalEntry) -> dict[str, Any]:
    known = asdict(entry.approval)
    names = ("state", "expires_ms", "decided_by", "decided_ms", "reason", "used_ms", "rounds")
    return {
        **{name: known[name] for name in names},
        "open_binding": entry.approval.question.binding if entry.is_open else None,
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
        question=ApprovalRequest(**{name: getattr(row, name) for name in _REQUEST}),
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        state=row.state,
        decided_by=row.decided_by,
        decided_ms=row.decided_ms,
        reason=row.reason,
        used_ms=row.used_ms,
        rounds=row.rounds,
    )
