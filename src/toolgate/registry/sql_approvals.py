"""Approvals over the table beside the records, for the event loop."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from toolgate.model.approvals import ApprovalState, CallApproval, Question
from toolgate.registry.approvals.contract import Said, Verdict
from toolgate.registry.approvals.sql import (
    Filter,
    answer_question,
    claim_notices,
    count_pending,
    decide_approval,
    expire_approvals,
    forget_approvals,
    has_expired,
    has_notices,
    mark_noticed,
    read_approval,
    read_approvals,
    settle_question,
)
from toolgate.registry.database.transactions import Transactions

T = TypeVar("T")


class SqlApprovals:
    """Approvals as every replica on one database sees them; `read_clock_ms` is the clock they all go by."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms

    async def ask(self, question: Question, *, new_id: str) -> Verdict:
        return await self._change(partial(answer_question, question=question, new_id=new_id))

    async def settle(self, question: Question, said: Said, *, new_id: str) -> Verdict:
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
        wanted = Filter(state=state, before=before, limit=limit)
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
        await self._change(partial(mark_noticed, approval_id=approval_id))

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
