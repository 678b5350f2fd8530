"""The calls that wait for a person: who asks for what, and the decision."""

from typing import Any, Final, get_args

from toolgate.errors import Conflict, InvalidRequest, NotFound, Unauthenticated
from toolgate.govern.approval_webhook import SIGNATURE, DecisionBody
from toolgate.govern.approvals import decide, find_approval, list_approvals
from toolgate.govern.control import Control
from toolgate.govern.decisions import Decided
from toolgate.model.approvals import ApprovalState
from toolgate.surfaces.http.parsing import parse_json
from toolgate.surfaces.rest.approval_shapes import (
    ApprovalsAnswer,
    ApprovalShown,
    ApproveSent,
    DenySent,
    show_approval,
)
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import listed, parse_choice, parse_model
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import ANYONE, Call, Endpoint, Intake, Parameter, checked

_ALL: Final = "/admin/api/approvals"
_ONE: Final = f"{_ALL}/{{approval_id}}"
_STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)
STATE: Final = Parameter("state", f"Only those in this state: {listed(_STATES)}.")


async def show_approvals(control: Control, call: Call[None]) -> Answer:
    """The newest first: those that wait, and what became of others."""
    page, state = parse_page(call.query), parse_choice(call.query, "state", _STATES)
    found = await list_approvals(
        control, call.caller, state=state, before=page.after or None, limit=page.limit + 1
    )
    shown, more = page.first(found, lambda one: one.approval_id)
    return Answer(ApprovalsAnswer(approvals=[show_approval(one) for one in shown], next_cursor=more))


async def read_approval(control: Control, call: Call[None]) -> Answer:
    """What is asked, and how it stands."""
    return Answer(show_approval(await find_approval(control, call.caller, call.ids["approval_id"])))


async def approve(control: Control, call: Call[ApproveSent]) -> Answer:
    """Let the call be made, once, by whoever asked. Nobody approves a call of its own.

    The local administrator may: whoever is on this machine could change the policy as well.
    """
    decided = Decided(is_approved=True, reason=call.body.reason)
    return Answer(show_approval(await decide(control, call.caller, call.ids["approval_id"], decided)))


async def deny(control: Control, call: Call[DenySent]) -> Answer:
    """Refuse the call. Whoever asked is told the reason when it calls again, and may ask anew after that."""
    decided = Decided(is_approved=False, reason=call.body.reason)
    return Answer(show_approval(await decide(control, call.caller, call.ids["approval_id"], decided)))


async def decide_from_webhook(control: Control, call: Call[bytes]) -> Answer:
    """What the receiver of the webhook says later on: for whoever can sign it, without a key.

    `Toolgate-Signature` is made as in the request that told of the question, over this body, within the last
    five minutes. `approval_id` is the one in the path.
    """
    webhook, approval_id = control.webhook, call.ids["approval_id"]
    if webhook is None or not webhook.is_signed(call.body, call.headers.get(SIGNATURE)):
        raise Unauthenticated("this gateway needs a key")
    sent = parse_model(DecisionBody, parse_json(call.body))
    if sent.approval_id != approval_id:
        raise InvalidRequest(
            "`approval_id` is not the one in the path: what is signed must say what it is of"
        )
    return Answer(show_approval(await webhook.decide(approval_id, sent)))


_APPROVE: Final[Intake[ApproveSent]] = Intake(ApproveSent, checked(ApproveSent).parse, may_be_empty=True)
# Its signature is over the very bytes, and nothing is said of them before that is checked.
_SIGNED: Final[Intake[bytes]] = Intake(DecisionBody, bytes, is_raw=True)

ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path=_ALL,
        role="viewer",
        summary="List the approvals of calls",
        handler=show_approvals,
        query=(STATE, *PAGING),
        answer=ApprovalsAnswer,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        role="viewer",
        summary="Read an approval",
        handler=read_approval,
        answer=ApprovalShown,
        errors=(NotFound,),
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/approve",
        role="publisher",
        summary="Approve a call",
        handler=approve,
        body=_APPROVE,
        answer=ApprovalShown,
        errors=(NotFound, Conflict),
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/deny",
        role="publisher",
        summary="Deny a call",
        handler=deny,
        body=checked(DenySent),
        answer=ApprovalShown,
        errors=(NotFound, Conflict),
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/decision",
        role=ANYONE,
        summary="Decide on a call, as the receiver of the webhook",
        handler=decide_from_webhook,
        body=_SIGNED,
        headers=(Parameter(SIGNATURE, '`t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>", in hex>`.'),),
        answer=ApprovalShown,
        errors=(Unauthenticated, NotFound, Conflict),
    ),
)
