"""Approvals of tool calls: nodes request them, approvers decide, each approval is used once.

This module has `ApprovalService`, which nodes use locally or at the control plane, and the pure rules of an
approval's state: from one approval to the next. `sql.py` has `Approvals`, which stores them in a table next
to the records, without revisions. `govern` lists and decides them. Any number of nodes send requests through
any number of replicas on one database. Never sends a call, and never grants one approval twice.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Protocol

from toolgate.errors import NotFound
from toolgate.model.approvals import ApprovalRequest, CallApproval

EXPIRES_MS: Final = 15 * 60 * 1000
"""How long a request waits for a decision, and an approval for its call: about the idle time of an agent's
session."""
ROUND_MS: Final = 10 * 60 * 1000  # how long after its first round an approved call may send the next one
KEEP_CLOSED_MS: Final = 30 * 24 * 3600 * 1000  # for the console: the audit log is the record
NOTICE_MS: Final = 15_000
"""An unacknowledged notice is sent again after this, then after twice as long, up to `NOTICE_MS_MOST`."""
NOTICE_MS_MOST: Final = 240_000  # so that a request gets several notices within `EXPIRES_MS`
AGREED: Final = "approved by elicitation"
DECLINED: Final = "declined by elicitation"
"""The reasons of elicited decisions."""
ApprovalOutcome = Literal["granted", "asked", "waiting", "denied", "full"]
"""`granted`: the call may be sent, now and once. `asked`: the request is new and pending. `waiting`: a known
request is pending. `full`: too many requests are pending, so this one was not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalLimits:
    """How many approvals the store keeps."""

    max_pending_each: int = 50
    """For each principal: more than its approvers read in one sitting."""
    max_pending: int = 1_000
    """Replicas that add an approval at the same moment may exceed either limit by one each."""
    keep_closed: int = 10_000


DEFAULT_APPROVAL_LIMITS: Final = ApprovalLimits()


class ApprovalVerdict(NamedTuple):
    """The result of a request for approval."""

    outcome: ApprovalOutcome
    approval_id: str = ""
    expires_ms: int = 0
    reason: str = ""
    """Why the call was denied."""
    in_place: bool = False
    """Whether the caller's own user decided, by elicitation."""
    console_url: str = ""
    """The URL of the console where approvers decide. Empty: unknown."""


class ElicitedDecision(NamedTuple):
    """The decision of the user at the calling client."""

    approval_id: str
    is_approved: bool


class ApprovalService(Protocol):
    """The approval service as nodes use it."""

    async def request(self, request: ApprovalRequest, /, *, new_id: str) -> ApprovalVerdict:
        """Use the approval of this call, or request one.

        `granted` uses the approval up before anything is sent. A repeated request joins the pending one. A
        denial is returned once; the next request is a new one. The rounds of an approved call are granted
        once each, in order.
        """

    async def settle(
        self, request: ApprovalRequest, decision: ElicitedDecision, /, *, new_id: str
    ) -> ApprovalVerdict:
        """Like `request`, after the client elicited a decision from its user.

        The decision applies to the approval it names, if that is pending for exactly this request. One step
        decides and uses it. A user who declined never gets `granted`, whatever an approver decided meanwhile.
        """


def as_of(approval: CallApproval, now_ms: int) -> CallApproval:
    """Return the approval in its state at `now_ms`: expired if its time is over."""
    is_expired = approval.state in {"pending", "approved"} and approval.expires_ms <= now_ms
    return replace(approval, state="expired") if is_expired else approval


def repeat_request(approval: CallApproval, now_ms: int) -> tuple[CallApproval, ApprovalVerdict | None]:
    """Apply a repeated request to an open approval. It closes unless pending. No verdict: make a new one."""
    known = as_of(approval, now_ms)
    if known.state == "pending":
        return approval, make_verdict(known, "waiting")
    if known.state == "approved":
        used = replace(known, state="used", used_ms=now_ms)
        return used, make_verdict(used, "granted")
    is_denied = known.state == "denied" and now_ms < known.expires_ms
    return known, make_verdict(known, "denied") if is_denied else None


def apply_elicited(
    approval: CallApproval, decision: ElicitedDecision, now_ms: int
) -> tuple[CallApproval, ApprovalVerdict | None]:
    """Like `repeat_request`, with the decision of the caller's own user."""
    state, agrees = as_of(approval, now_ms).state, decision.is_approved
    is_withdrawn = state == "approved" and not agrees
    if state != "pending" and not is_withdrawn:
        after, verdict = repeat_request(approval, now_ms)
        is_decided = verdict is not None or agrees
        return after, verdict if is_decided else decline(decision)
    by, reason = approval.question.principal, AGREED if agrees else DECLINED
    decided = record_decision(approval, is_approved=agrees, by=by, reason=reason, now_ms=now_ms)
    after, verdict = repeat_request(decided, now_ms)
    assert verdict is not None  # it has not expired
    return after, verdict._replace(in_place=True)


def decline(decision: ElicitedDecision) -> ApprovalVerdict:
    """Return the verdict for a user who declined an approval that is no longer open."""
    return ApprovalVerdict("denied", decision.approval_id, reason=DECLINED)


def make_verdict(approval: CallApproval, outcome: ApprovalOutcome) -> ApprovalVerdict:
    reason = approval.reason if outcome == "denied" else ""
    return ApprovalVerdict(outcome, approval.approval_id, approval.expires_ms, reason)


def record_decision(
    approval: CallApproval, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> CallApproval:
    """Return the approval with the decision of an approver or of the caller's own user."""
    return replace(
        approval,
        state="approved" if is_approved else "denied",
        decided_by=by,
        decided_ms=now_ms,
        reason=reason.replace("\0", "\ufffd"),  # PostgreSQL stores no NUL in a text
        expires_ms=now_ms + EXPIRES_MS if is_approved else approval.expires_ms,
    )


def approval_not_found(approval_id: str) -> NotFound:
    return NotFound(f"no approval `{approval_id[:40]}`", hint="list approvals with `toolgate approvals list`")
