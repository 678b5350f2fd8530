"""Approvals in a dict: for tests, and for trying things out."""

from collections.abc import Callable, Sequence
from itertools import islice

from toolgate.model.approvals import ApprovalRequest, ApprovalState, CallApproval
from toolgate.registry.approvals import contract as steps
from toolgate.registry.approvals.contract import KEEP_CLOSED, ApprovalEntry, ApprovalVerdict, ElicitedDecision


class MemoryApprovals:
    """Entries by id, in the order they were made. No method suspends, so none can interleave."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._kept: dict[str, ApprovalEntry] = {}

    async def ask(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
        now_ms = self._clock_ms()
        if question.round and (begun := self._begun(question, now_ms)) is not None:
            self._keep(begun._replace(approval=steps.count_round(begun.approval)))
            return steps.make_verdict(begun.approval, "granted")
        if (known := self._open(question)) is not None:
            answered = steps.answer_again(known, now_ms)
            self._keep(answered.entry)
            if answered.verdict is not None:
                return answered.verdict
        waiting = [one.question.principal for one in self._pending(now_ms)]
        if not steps.has_room(own=waiting.count(question.principal), all_pending=len(waiting)):
            return ApprovalVerdict("full")
        if new_id in self._kept:
            raise steps.duplicate_approval(new_id)
        entry = steps.open_entry(question, new_id=new_id, now_ms=now_ms)
        self._keep(entry)
        return steps.make_verdict(entry.approval, "asked")

    async def settle(
        self, question: ApprovalRequest, said: ElicitedDecision, *, new_id: str
    ) -> ApprovalVerdict:
        known = self._open(question)
        if known is not None and known.approval.approval_id == said.approval_id:
            settled = steps.apply_elicited(known, said, self._clock_ms())
            self._keep(settled.entry)
            if settled.verdict is not None:
                return settled.verdict
        elif not said.is_approved:
            return steps.declined_verdict(said)
        return await self.ask(question, new_id=new_id)

    async def decide(self, approval_id: str, *, is_approved: bool, by: str, reason: str) -> CallApproval:
        entry = self._kept.get(approval_id)
        if entry is None:
            raise steps.approval_not_found(approval_id)
        after = steps.decide_entry(
            entry, is_approved=is_approved, by=by, reason=reason, now_ms=self._clock_ms()
        )
        self._keep(after)
        return after.approval

    async def get(self, approval_id: str) -> CallApproval | None:
        entry = self._kept.get(approval_id)
        return None if entry is None else steps.as_of(entry.approval, self._clock_ms())

    async def list(
        self, *, state: ApprovalState | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[CallApproval]:
        now_ms = self._clock_ms()
        newest_first = [steps.as_of(one.approval, now_ms) for one in reversed(self._kept.values())]
        if before is not None:
            ids = [one.approval_id for one in newest_first]
            newest_first = newest_first[ids.index(before) + 1 :] if before in ids else []
        return list(islice((one for one in newest_first if state in {None, one.state}), limit))

    async def pending(self) -> int:
        return len(self._pending(self._clock_ms()))

    async def expire(self) -> Sequence[CallApproval]:
        now_ms = self._clock_ms()
        over = [entry for entry in self._kept.values() if steps.is_expired(entry.approval, now_ms)]
        ended = [
            entry._replace(approval=steps.as_of(entry.approval, now_ms), is_open=False) for entry in over
        ]
        for entry in ended:
            self._keep(entry)
        return [entry.approval for entry in ended]

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        now_ms = self._clock_ms()
        due = (entry for entry in self._kept.values() if steps.needs_notice(entry, now_ms))
        given = [steps.schedule_notice(entry, now_ms) for entry in islice(due, limit)]
        for entry in given:
            self._keep(entry)
        return [entry.approval for entry in given]

    async def noticed(self, approval_id: str) -> None:
        if (entry := self._kept.get(approval_id)) is not None:
            self._keep(entry._replace(notified_ms=self._clock_ms()))

    async def forget(self) -> None:
        now_ms = self._clock_ms()
        closed = [
            entry.approval
            for entry in reversed(self._kept.values())
            if entry.approval.state not in {"pending", "approved"}
        ]
        for place, one in enumerate(closed, start=1):
            if place > KEEP_CLOSED or one.created_ms < steps.retention_cutoff_ms(now_ms):
                del self._kept[one.approval_id]

    def _keep(self, entry: ApprovalEntry) -> None:
        self._kept[entry.approval.approval_id] = entry

    def _open(self, question: ApprovalRequest) -> ApprovalEntry | None:
        same = (entry for entry in self._kept.values() if entry.approval.question.binding == question.binding)
        return next((entry for entry in same if entry.is_open), None)

    def _begun(self, question: ApprovalRequest, now_ms: int) -> ApprovalEntry | None:
        """The call of which `question` is the next round."""
        same = (entry for entry in self._kept.values() if entry.approval.question.binding == question.binding)
        return next((entry for entry in same if steps.continues_call(entry.approval, question, now_ms)), None)

    def _pending(self, now_ms: int) -> Sequence[CallApproval]:
        kept = (entry.approval for entry in self._kept.values())
        return [one for one in kept if one.state == "pending" and not steps.is_expired(one, now_ms)]
