"""What becomes of a decision on a call that waits, whoever makes it: it is kept, and it is on record."""

from dataclasses import dataclass

from toolgate.audit.events import ApprovalRecorded, ApprovalStep
from toolgate.audit.log.writer import AuditLog
from toolgate.model.approvals import CallApproval
from toolgate.registry.approvals.contract import Approvals


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a person says to a question."""

    is_approved: bool
    reason: str


async def keep_decision(
    approvals: Approvals, audit: AuditLog, approval_id: str, decided: Decided, *, by: str, at_ms: int
) -> CallApproval:
    """The approval after it. Raises NotFound, and Conflict where it is not pending any more."""
    after = await approvals.decide(approval_id, is_approved=decided.is_approved, by=by, reason=decided.reason)
    audit.record(record_of(after, "approved" if decided.is_approved else "denied", at_ms=at_ms))
    return after


def record_of(approval: CallApproval, step: ApprovalStep, *, at_ms: int) -> ApprovalRecorded:
    """What the audit says of one step."""
    asked = approval.question
    return ApprovalRecorded(
        at_ms=at_ms,
        approval_id=approval.approval_id,
        state=step,
        principal=asked.principal,
        task_id=asked.task_id,
        server_id=asked.server_id,
        tool=asked.tool,
        decided_by=approval.decided_by,
        reason=approval.reason,
    )
