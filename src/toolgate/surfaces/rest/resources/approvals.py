"""Approvals of tool calls: the requests, and the decisions of approvers and of the webhook."""

from typing import Annotated, Any, Final, get_args

import msgspec
from pydantic import Field

from toolgate.errors import Conflict, InvalidRequest, Unauthenticated
from toolgate.govern import approvals
from toolgate.govern.control import Control
from toolgate.model.approvals import MAX_REASON, ApprovalState, CallApproval
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.http.parsing import parse_json
from toolgate.surfaces.rest.framework.request import (
    PAGING,
    BodySpec,
    Parameter,
    RestCall,
    join_quoted,
    parse_model,
    validate_as,
)
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape
from toolgate.surfaces.rest.framework.routing import ANYONE, get, post


class ApproveSent(StrictBody):
    """An approval."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """Recorded in the audit log."""


class DenySent(StrictBody):
    """A denial."""

    reason: Annotated[str, Field(max_length=MAX_REASON)]
    """Returned to the caller, and recorded in the audit log."""


class ApprovalShown(ResponseShape, frozen=True, kw_only=True):
    """A call that needs an approval."""

    approval_id: str
    state: ApprovalState
    """`expired`: no one decided in time, or the call was not made in time. `used`: the call was made."""
    principal: str
    """The principal that makes the call."""
    task_id: str | None
    session: str | None
    door: str
    server_id: str
    tool: str
    arguments: dict[str, Any]
    """Secrets are masked, and long texts are cut with a mark."""
    arguments_digest: str
    """SHA-256 of the arguments in canonical JSON. The approval is valid for exactly these arguments."""
    definition: str
    """Digest of the tool's definition. The approval is valid for exactly this definition."""
    why: str
    """The rule that requires the approval."""
    created_ms: int
    expires_ms: int
    """Until then an approver may decide or, after an approval, the caller may make the call."""
    decided_by: str | None
    decided_ms: int | None
    reason: str | None
    used_ms: int | None


class ApprovalsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of approvals, the newest first."""

    approvals: list[ApprovalShown]
    next_cursor: NextCursor


def show_approval(approval: CallApproval) -> ApprovalShown:
    """An approval as responses show it."""
    question, is_decided = approval.question, approval.decided_ms is not None
    return ApprovalShown.of(
        approval,
        question,
        task_id=question.task_id or None,
        session=question.session or None,
        arguments=msgspec.json.decode(question.arguments, type=dict[str, Any]),
        decided_by=approval.decided_by if is_decided else None,
        reason=approval.reason if is_decided else None,
    )


_ALL: Final = "/admin/api/approvals"
_ONE: Final = f"{_ALL}/{{approval_id}}"
_STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)
STATE: Final = Parameter("state", f"Only approvals in this state: {join_quoted(_STATES)}.")


@get(_ALL, "viewer", "List approvals", query=(STATE, *PAGING))
async def show_approvals(control: Control, call: RestCall[None]) -> ApprovalsResponse:
    """Pending and closed approvals, the newest first."""
    page, state = call.page(), call.choice("state", _STATES)
    found = await approvals.list_approvals(
        control, call.caller, state=state, before=page.after or None, limit=page.limit + 1
    )
    shown, more = page.first(found, lambda one: one.approval_id)
    return ApprovalsResponse(approvals=[show_approval(one) for one in shown], next_cursor=more)


@get(_ONE, "viewer", "Read an approval")
async def read_approval(control: Control, call: RestCall[None]) -> ApprovalShown:
    """The call to approve, and the state of the approval."""
    return show_approval(await approvals.find_approval(control, call.caller, call.ids["approval_id"]))


_APPROVAL: Final = validate_as(ApproveSent, may_be_empty=True)


@post(f"{_ONE}/approve", "publisher", "Approve a call", body=_APPROVAL, errors=(Conflict,))
async def approve(control: Control, call: RestCall[ApproveSent]) -> ApprovalShown:
    """Allow the caller to make the call, once. A caller cannot approve its own calls.

    The local administrator can, because anyone on this machine could also change the policy.
    """
    return await _decide(control, call, is_approved=True)


@post(f"{_ONE}/deny", "publisher", "Deny a call", errors=(Conflict,))
async def deny(control: Control, call: RestCall[DenySent]) -> ApprovalShown:
    """Deny the call. The caller gets the reason with its next call, and may then request a new approval."""
    return await _decide(control, call, is_approved=False)


async def _decide(
    control: Control, call: RestCall[ApproveSent] | RestCall[DenySent], *, is_approved: bool
) -> ApprovalShown:
    decided = await approvals.decide_approval(
        control, call.caller, call.ids["approval_id"], is_approved=is_approved, reason=call.body.reason
    )
    return show_approval(decided)


@post(
    f"{_ONE}/decision",
    ANYONE,
    "Decide on a call as the webhook receiver",
    service=approvals.ApprovalWebhook,
    # The signature covers the raw bytes, so nothing about them may be parsed or reported before it is
    # verified.
    body=BodySpec(approvals.DecisionBody, bytes, is_raw=True),
    headers=(
        Parameter(approvals.SIGNATURE, '`t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>", in hex>`.'),
    ),
    errors=(Conflict,),
)
async def decide_from_webhook(webhook: approvals.ApprovalWebhook, call: RestCall[bytes]) -> ApprovalShown:
    """Decide as the receiver of the webhook: with its signature, without a key.

    Make `Toolgate-Signature` over this body in the same way as the gateway does for the webhook request. It
    must be at most five minutes old. `approval_id` must equal the one in the path.
    """
    if not webhook.signer.is_signed(call.body, call.headers.get(approvals.SIGNATURE)):
        raise Unauthenticated("this gateway requires a key")
    approval_id, sent = call.ids["approval_id"], parse_model(approvals.DecisionBody, parse_json(call.body))
    if sent.approval_id != approval_id:
        problem = "`approval_id` of the signed body must equal the one in the path"
        raise InvalidRequest(problem)
    return show_approval(await webhook.decide(approval_id, sent))
