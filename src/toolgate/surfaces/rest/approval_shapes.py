"""Approvals of calls as this surface takes and shows them."""

from typing import Annotated, Any

import msgspec
from pydantic import Field

from toolgate.model.approvals import MAX_REASON, ApprovalState, CallApproval
from toolgate.registry.records.server_bodies import Body
from toolgate.surfaces.rest.shapes import Shown


class ApproveSent(Body):
    """An approval."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """For whoever reads the audit."""


class DenySent(Body):
    """A denial."""

    reason: Annotated[str, Field(max_length=MAX_REASON)]
    """Told to whoever asked."""


class ApprovalShown(Shown, frozen=True, kw_only=True):
    """A call that somebody was asked to agree to."""

    approval_id: str
    state: ApprovalState
    """`expired`: nobody decided in time, or the call was not made in time. `used`: the call was made."""
    principal: str
    """Who calls."""
    task_id: str | None
    session: str | None
    door: str
    server_id: str
    tool: str
    arguments: dict[str, Any]
    """Secrets are masked, and what is too long is cut, visibly."""
    arguments_digest: str
    """SHA-256 of the arguments in canonical JSON: no others may be sent."""
    definition: str
    """Digest of the tool's definition: of no other may it be."""
    why: str
    """The rule that asks for it."""
    created_ms: int
    expires_ms: int
    """Until then somebody may decide, or, once it is approved, the call may be made."""
    decided_by: str | None
    decided_ms: int | None
    reason: str | None
    used_ms: int | None


class ApprovalsAnswer(Shown, frozen=True, kw_only=True):
    """A page of them, the newest first."""

    approvals: list[ApprovalShown]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


def show_approval(approval: CallApproval) -> ApprovalShown:
    """All of it."""
    asked, is_decided = approval.question, approval.decided_ms is not None
    return ApprovalShown(
        approval_id=approval.approval_id,
        state=approval.state,
        principal=asked.principal,
        task_id=asked.task_id or None,
        session=asked.session or None,
        door=asked.door,
        server_id=asked.server_id,
        tool=asked.tool,
        arguments=msgspec.json.decode(asked.arguments, type=dict[str, Any]),
        arguments_digest=asked.arguments_digest,
        definition=asked.definition,
        why=asked.why,
        created_ms=approval.created_ms,
        expires_ms=approval.expires_ms,
        decided_by=approval.decided_by if is_decided else None,
        decided_ms=approval.decided_ms,
        reason=approval.reason if is_decided else None,
        used_ms=approval.used_ms,
    )
