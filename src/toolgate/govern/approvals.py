"""Approvals of calls, as people see and decide on them.

Whoever decides is not who asks: no principal approves a call of its own, unless it is the local
administrator, whom this machine trusts with everything anyway. Taking one's own question back is denying it.
A key approves only what its own ceiling contains; of all else it sees nothing.
"""

from collections.abc import Sequence
from typing import Final

from toolgate.errors import Forbidden
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.govern.approval_webhook import ApprovalDecision, record_decision
from toolgate.govern.changes.permissions import may_decide
from toolgate.govern.control import Control
from toolgate.model.approvals import ApprovalState, CallApproval
from toolgate.model.principals import Principal
from toolgate.policy.reach import NO_CEILING
from toolgate.registry.approvals.contract import approval_not_found

READ_AT_ONCE: Final = 500
"""Approvals that are read at once for a key that may see few of the thousands that are kept."""


async def list_approvals(
    control: Control,
    principal: Principal,
    *,
    state: ApprovalState | None,
    before: str | None,
    limit: int,
) -> Sequence[CallApproval]:
    """Those that the caller may decide on, the newest first."""
    kept: list[CallApproval] = []
    at_once = limit if principal.ceiling == NO_CEILING else max(limit, READ_AT_ONCE)
    while len(kept) < limit:
        found = await control.store.approvals.list(state=state, before=before, limit=at_once)
        kept += [one for one in found if may_decide(control, principal, one.question)]
        if len(found) < at_once:
            break
        before = found[-1].approval_id
    return kept[:limit]


async def find_approval(control: Control, principal: Principal, approval_id: str) -> CallApproval:
    """One of them. Raises NotFound, also where it is outside of the caller's ceiling."""
    found = await control.store.approvals.get(approval_id)
    if found is None or not may_decide(control, principal, found.question):
        raise approval_not_found(approval_id)
    return found


async def decide_approval(
    control: Control, principal: Principal, approval_id: str, decided: ApprovalDecision
) -> CallApproval:
    """Raises NotFound; Conflict where it is not pending any more; Forbidden to who asked itself."""
    found = await find_approval(control, principal, approval_id)
    is_own = found.question.principal == principal.id
    if decided.is_approved and is_own and principal != LOCAL_ADMIN:
        raise Forbidden("nobody approves a call of its own", hint="let somebody else decide; you may deny it")
    return await record_decision(
        control.store.approvals,
        control.gateway.audit,
        approval_id,
        decided,
        by=principal.id,
        at_ms=control.clock_ms(),
    )
