"""Approvals in SQL, the same for every engine.

A request locks the one open row of its binding. Concurrent requests queue for the lock, and each sees what
the previous one wrote.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, or_, select, update

from toolgate.errors import Conflict, StorageUnavailable
from toolgate.model.approvals import ApprovalRequest, ApprovalState, CallApproval
from toolgate.registry import approvals as rules
from toolgate.registry.approvals import ApprovalVerdict, ElicitedDecision
from toolgate.registry.database.tables import APPROVALS, insert_new, pick_fields
from toolgate.registry.database.transactions import SharedTable, transaction

_ROW: Final = APPROVALS.c
# Columns that hold the field of the same name.
_REQUEST: Final = tuple(name for name in ApprovalRequest.__slots__ if name != "round")
_STATE: Final = ("state", "expires_ms", "decided_by", "decided_ms", "reason", "used_ms", "rounds")
_WAITING: Final = ("pending", "approved")
_TRIES: Final = 5  # each failure means that another caller made the same request at this moment


@dataclass(eq=False)
class Approvals(SharedTable):
    """All approvals, shared by every control plane replica on one database. An `ApprovalService`."""

    limits: rules.ApprovalLimits = rules.DEFAULT_APPROVAL_LIMITS

    @transaction("approvals")
    def request(self, connection: Connection, request: ApprovalRequest, /, *, new_id: str) -> ApprovalVerdict:
        return self._request(connection, request, new_id, self.read_clock_ms(connection))

    @transaction("approvals")
    def settle(
        self, connection: Connection, request: ApprovalRequest, decision: ElicitedDecision, /, *, new_id: str
    ) -> ApprovalVerdict:
        now_ms = self.read_clock_ms(connection)
        query = select(APPROVALS).where(_ROW.open_binding == request.binding, _ROW.id == decision.approval_id)
        row = connection.execute(query.with_for_update()).one_or_none()
        if row is not None:
            after, verdict = rules.apply_elicited(_approval(row), decision, now_ms)
            _close(connection, after)
            if verdict is not None:
                return verdict
        elif not decision.is_approved:
            return rules.decline(decision)
        return self._request(connection, request, new_id, now_ms)

    @transaction("approvals")
    def decide(
        self, connection: Connection, approval_id: str, *, is_approved: bool, by: str, reason: str
    ) -> CallApproval:
        """Decide a pending approval. Raises NotFound, and Conflict if it is no longer pending. An approved
        call may be sent within `EXPIRES_MS` from now on."""
        now_ms = self.read_clock_ms(connection)
        query = select(APPROVALS).where(_ROW.id == approval_id).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            raise rules.approval_not_found(approval_id)
        known = rules.as_of(_approval(row), now_ms)
        if known.state != "pending":
            raise Conflict(
                f"the approval `{known.approval_id}` is already {known.state}",
                hint="repeat the call to request a new approval",
            )
        decided = rules.record_decision(known, is_approved=is_approved, by=by, reason=reason, now_ms=now_ms)
        _update(connection, approval_id, **pick_fields(decided, _STATE))
        return decided

    @transaction()
    def get(self, connection: Connection, approval_id: str) -> CallApproval | None:
        now_ms = self.read_clock_ms(connection)
        row = _read_row(connection, approval_id)
        return None if row is None else rules.as_of(_approval(row), now_ms)

    @transaction()
    def list(
        self,
        connection: Connection,
        *,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[CallApproval]:
        """Return approvals, newest first. `before`: the id of the last one seen."""
        now_ms = self.read_clock_ms(connection)
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
        return [rules.as_of(_approval(row), now_ms) for row in connection.execute(query)]

    @transaction()
    def pending(self, connection: Connection) -> int:
        return _count_pending(connection, now_ms=self.read_clock_ms(connection))

    async def expire(self) -> Sequence[CallApproval]:
        """Close the approvals that expired since the last call. Returns each once."""
        # Read first: if there is nothing to do, nothing is written.
        return await self._expire() if await self._has_any(_is_expired) else ()

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        """Claim pending approvals whose notice is due, oldest first. Each is returned to one caller, and
        again after a growing delay, until `mark_notified`."""
        return await self._claim_notices(limit) if await self._has_any(_needs_notice) else ()

    @transaction("approvals")
    def mark_notified(self, connection: Connection, approval_id: str) -> None:
        """Record that the notice was delivered, so that no one sends it again."""
        _update(connection, approval_id, notified_ms=self.read_clock_ms(connection))

    @transaction("approvals")
    def forget(self, connection: Connection) -> None:
        """Delete approvals that were closed long ago, and the oldest of too many."""
        place = func.row_number().over(order_by=_ROW.position.desc())
        placed = select(_ROW.position, _ROW.created_ms, place.label("place"))
        closed = placed.where(_ROW.state.not_in(_WAITING)).subquery("closed").c
        is_old = closed.created_ms < self.read_clock_ms(connection) - rules.KEEP_CLOSED_MS
        old = select(closed.position).where(is_old | (closed.place > self.limits.keep_closed))
        connection.execute(delete(APPROVALS).where(_ROW.position.in_(old)))

    def _request(
        self, connection: Connection, request: ApprovalRequest, new_id: str, now_ms: int
    ) -> ApprovalVerdict:
        if request.round and (verdict := _continue_call(connection, request, now_ms)) is not None:
            return verdict
        for _ in range(_TRIES):
            query = select(APPROVALS).where(_ROW.open_binding == request.binding).with_for_update()
            row = connection.execute(query).one_or_none()
            if row is not None:
                after, known = rules.repeat_request(_approval(row), now_ms)
                if after.state != "pending":  # a repeated request writes nothing
                    _close(connection, after)
                if known is not None:
                    return known
            own = _count_pending(connection, request.principal, now_ms=now_ms)
            everyone = _count_pending(connection, now_ms=now_ms)
            if own >= self.limits.max_pending_each or everyone >= self.limits.max_pending:
                return ApprovalVerdict("full")
            new = CallApproval(
                approval_id=new_id, question=request, created_ms=now_ms, expires_ms=now_ms + rules.EXPIRES_MS
            )
            if _insert(connection, new):
                return rules.make_verdict(new, "asked")
            if row is None and _read_row(connection, new_id) is not None:
                raise Conflict(f"duplicate approval `{new_id}`")
            # Another caller made the same request at this moment: read what came of it.
        raise StorageUnavailable("too many concurrent requests for the same approval")

    @transaction()
    def _has_any(self, connection: Connection, condition: Callable[[int], ColumnElement[bool]]) -> bool:
        query = select(exists().where(condition(self.read_clock_ms(connection))))
        return bool(connection.execute(query).scalar_one())

    @transaction("approvals")
    def _expire(self, connection: Connection) -> Sequence[CallApproval]:
        now_ms = self.read_clock_ms(connection)
        query = select(APPROVALS).where(_is_expired(now_ms)).order_by(_ROW.position)
        expired = []
        for row in connection.execute(query.with_for_update(skip_locked=True)).all():
            expired.append(rules.as_of(_approval(row), now_ms))
            _close(connection, expired[-1])
        return expired

    @transaction("approvals")
    def _claim_notices(self, connection: Connection, limit: int) -> Sequence[CallApproval]:
        now_ms = self.read_clock_ms(connection)
        query = select(APPROVALS).where(_needs_notice(now_ms)).order_by(_ROW.position).limit(limit)
        rows = connection.execute(query.with_for_update(skip_locked=True)).all()
        for row in rows:
            wait_ms = min(rules.NOTICE_MS << min(row.notices, 10), rules.NOTICE_MS_MOST)
            _update(connection, row.id, notices=row.notices + 1, notice_ms=now_ms + wait_ms)
        return [_approval(row) for row in rows]


def _read_row(connection: Connection, approval_id: str) -> Row[Any] | None:
    return connection.execute(select(APPROVALS).where(_ROW.id == approval_id)).one_or_none()


def _count_pending(connection: Connection, principal: str | None = None, *, now_ms: int) -> int:
    """Count those of one principal, or all."""
    query = select(func.count()).select_from(APPROVALS)
    query = query.where(_ROW.state == "pending", _ROW.expires_ms > now_ms)
    if principal is not None:
        query = query.where(_ROW.principal == principal)
    return int(connection.execute(query).scalar_one())


def _is_expired(now_ms: int) -> ColumnElement[bool]:
    return _ROW.state.in_(_WAITING) & (_ROW.expires_ms <= now_ms)


def _needs_notice(now_ms: int) -> ColumnElement[bool]:
    is_due = _ROW.notified_ms.is_(None) & (_ROW.notice_ms <= now_ms)
    return (_ROW.state == "pending") & (_ROW.expires_ms > now_ms) & is_due


def _continue_call(connection: Connection, request: ApprovalRequest, now_ms: int) -> ApprovalVerdict | None:
    """Grant the next round of a call that used its approval."""
    query = select(APPROVALS).where(
        _ROW.binding == request.binding, _ROW.state == "used", _ROW.used_ms > now_ms - rules.ROUND_MS
    )
    for row in connection.execute(query.order_by(_ROW.position).with_for_update()).all():
        if row.rounds + 1 == request.round:
            _update(connection, row.id, rounds=request.round)
            return rules.make_verdict(_approval(row), "granted")
    return None


def _insert(connection: Connection, approval: CallApproval) -> bool:
    """Returns whether it is stored: another approval may be open for the same binding by now."""
    binding = approval.question.binding
    row = {
        **pick_fields(approval.question, _REQUEST),
        **pick_fields(approval, _STATE),
        "id": approval.approval_id,
        "binding": binding,
        "open_binding": binding,
        "created_ms": approval.created_ms,
    }
    return bool(insert_new(connection, APPROVALS, [row]))


def _close(connection: Connection, approval: CallApproval) -> None:
    _update(connection, approval.approval_id, open_binding=None, **pick_fields(approval, _STATE))


def _update(connection: Connection, approval_id: str, **changed: object) -> None:
    connection.execute(update(APPROVALS).where(_ROW.id == approval_id).values(changed))


def _approval(row: Row[Any]) -> CallApproval:
    question = ApprovalRequest(**pick_fields(row, _REQUEST))
    return CallApproval(
        approval_id=row.id, question=question, created_ms=row.created_ms, **pick_fields(row, _STATE)
    )
