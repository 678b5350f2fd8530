"""Approvals of calls, as people see and decide on them.

Whoever decides is not who asks: no principal approves a call of its own, unless it is the local
administrator, whom this machine trusts with everything anyway. Taking one's own question back is denying it.
"""

from collections.abc import Sequence

from toolgate.errors import Forbidden
from toolgate.gateway.identity import LOCAL_ADMIN
from toolgate.govern.control import Control
from toolgate.govern.decisions import Decided, keep_decision
from toolgate.model.approvals import ApprovalState, CallApproval
from toolgate.model.principals import Principal
from toolgate.registry.approval_steps import unknown


async def list_approvals(
    control: Control, *, state: ApprovalState | None, before: str | None, limit: int
) -> Sequence[CallApproval]:
    """The newest first."""
    return await control.store.approvals.list(state=state, before=before, limit=limit)


async def find_approval(control: Control, approval_id: str) -> CallApproval:
    """One of them. Raises NotFound."""
    found = await control.store.approvals.get(approval_id)
    if found is None:
        raise unknown(approval_id)
    return found


async def decide(control: Control, principal: Principal, approval_id: str, decided: Decided) -> CallApproval:
    """Raises NotFound; Conflict where it is not pending any more; Forbidden to who asked itself."""
    found = await find_approval(control, approval_id)
    is_own = found.question.principal == principal.id
    if decided.is_approved and is_own and principal != LOCAL_ADMIN:
        raise Forbidden("nobody approves a call of its own", hint="let somebody else decide; you may deny it")
    return await keep_decision(
        control.store.approvals,
        control.gateway.audit,
        approval_id,
        decided,
        by=principal.id,
        at_ms=control.clock_ms(),
    )
