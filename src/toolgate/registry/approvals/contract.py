"""The contract of approvals, and the rules by which one changes its state.

Approvals are stored next to the records, without revisions. Any number of nodes request them, through any
number of control plane replicas on one database, and exactly one call uses each. The rules are pure: an
approval in, the one after it out.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Protocol

from toolgate.errors import Conflict, NotFound
from toolgate.model.approvals import ApprovalRequest, CallApproval

EXPIRES_MS: Final = 15 * 60 * 1000
"""How long a request waits for a decision, and an approval for its call: about as long as an agent's session
idles."""
ROUND_MS: Final = 10 * 60 * 1000
"""How long after its first round an approved call may send the next one."""
KEEP_CLOSED_MS: Final = 30 * 24 * 3600 * 1000

NOTICE_MS: Final = 15_000
"""An unacknowledged notice is sent again after this, then after twice as long, up to `NOTICE_MS_MOST`."""
NOTICE_MS_MOST: Final = 240_000

AGREED: Final = "agreed to in place"
DECLINED: Final = "declined in place"
"""The reasons of elicited decisions."""

ApprovalOutcome = Literal["granted", "asked", "waiting", "denied", "full"]
"""`granted`: the call may be sent, now and once. `asked`: a new request waits. `waiting`: a known request
waits. `full`: no request was made, since too many wait already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalLimits:
    """How many approvals are kept."""

    max_pending_each: int = 50
    """For each principal: more than its approvers read in one sitting."""
    max_pending: int = 1_000
    """Replicas that add one at the same moment may exceed either limit by one each."""
    keep_closed: int = 10_000


DEFAULT_APPROVAL_LIMITS: Final = ApprovalLimits()


class ApprovalVerdict(NamedTuple):
    """The result of a request for approval."""

    outcome: ApprovalOutcome
    approval_id: str = ""
    expires_ms: int = 0
    reason: str = ""
    """Why it was denied."""
    in_place: bool = False
    """The caller's own user made this decision, by elicitation."""
    console_url: str = ""
    """The console where approvers decide. Empty: not known here."""


class ElicitedDecision(NamedTuple):
    """What the user at the calling client decided."""

    approval_id: str
    is_approved: bool


class ApprovalService(Protocol):
    """Approvals as a node uses them."""

    async def ask(self, request: ApprovalRequest, /, *, new_id: str) -> ApprovalVerdict:
        """Use the approval of this call if there is one, or request it.

        `granted` uses the approval up before anything is sent. A repeated request joins the one that waits. A
        denial is returned once; the next request is a new one. The rounds of an approved call are granted
        once each, in order.
        """

    async def settle(
        self, request: ApprovalRequest, decision: ElicitedDecision, /, *, new_id: str
    ) -> ApprovalVerdict:
        """As `ask`, after the client elicited a decision from its user.

        The decision counts for the approval it names, if that waits for this very request: it is decided and
        used in one step. A user who declined gets no `granted`, whatever an approver decided meanwhile.
        """


class ApprovalEntry(NamedTuple):
    """An approval with what only its store knows."""

    approval: CallApproval
    is_open: bool = True
    """A repeated request joins it. At most one approval with the same binding is open."""
    notices: int = 0
    """How often its notice was claimed."""
    notice_ms: int = 0
    """When the notice may be claimed again."""
    notified_ms: int | None = None
    """When the notice was delivered."""


class ApprovalTransition(NamedTuple):
    """The effect of a request on an open approval. `verdict` None: make a new request."""

    entry: ApprovalEntry
    verdict: ApprovalVerdict | None


def as_of(approval: CallApproval, now_ms: int) -> CallApproval:
    """Return the approval in its state at `now_ms`: expired, if its time is over."""
    is_expired = approval.state in {"pending", "approved"} and approval.expires_ms <= now_ms
    return replace(approval, state="expired") if is_expired else approval


def answer_again(entry: ApprovalEntry, now_ms: int) -> ApprovalTransition:
    """Apply a repeated request to an open approval."""
    known = as_of(entry.approval, now_ms)
    if known.state == "pending":
        return ApprovalTransition(entry, make_verdict(known, "waiting"))
    if known.state == "approved":
        used = replace(known, state="used", used_ms=now_ms)
        return ApprovalTransition(entry._replace(approval=used, is_open=False), make_verdict(used, "granted"))
    is_denied = known.state == "denied" and now_ms < known.expires_ms
    verdict = make_verdict(known, "denied") if is_denied else None
    return ApprovalTransition(entry._replace(approval=known, is_open=False), verdict)


def apply_elicited(entry: ApprovalEntry, decision: ElicitedDecision, now_ms: int) -> ApprovalTransition:
    """Apply the decision of the caller's own user to an open approval."""
    state = as_of(entry.approval, now_ms).state
    is_withdrawn = state == "approved" and not decision.is_approved
    if state != "pending" and not is_withdrawn:
        known = answer_again(entry, now_ms)
        is_decided = known.verdict is not None or decision.is_approved
        return known if is_decided else known._replace(verdict=decline(decision))
    after = _record_decision(
        entry,
        is_approved=decision.is_approved,
        by=entry.approval.question.principal,
        reason=AGREED if decision.is_approved else DECLINED,
        now_ms=now_ms,
    )
    settled = answer_again(after, now_ms)
    assert settled.verdict is not None  # it has not expired
    return settled._replace(verdict=settled.verdict._replace(in_place=True))


def decline(decision: ElicitedDecision) -> ApprovalVerdict:
    """Return the verdict for a user who declined an approval that is no longer open."""
    return ApprovalVerdict("denied", decision.approval_id, reason=DECLINED)


def continues_call(used: CallApproval, request: ApprovalRequest, now_ms: int) -> bool:
    """Whether `request` is the next round of the call that used the approval."""
    is_recent = used.used_ms is not None and now_ms - used.used_ms < ROUND_MS
    return is_recent and used.rounds + 1 == request.round


def make_verdict(approval: CallApproval, outcome: ApprovalOutcome) -> ApprovalVerdict:
    """Return `outcome` with what the caller may know of the approval."""
    reason = approval.reason if outcome == "denied" else ""
    return ApprovalVerdict(outcome, approval.approval_id, approval.expires_ms, reason)


def decide_entry(
    entry: ApprovalEntry, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> ApprovalEntry:
    """Apply an approver's decision. Raises Conflict."""
    known = as_of(entry.approval, now_ms)
    if known.state != "pending":
        raise Conflict(
            f"the approval `{known.approval_id}` is {known.state} already",
            hint="repeat the call to request a new one",
        )
    return _record_decision(entry, is_approved=is_approved, by=by, reason=reason, now_ms=now_ms)


def _record_decision(
    entry: ApprovalEntry, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> ApprovalEntry:
    after = replace(
        entry.approval,
        state="approved" if is_approved else "denied",
        decided_by=by,
        decided_ms=now_ms,
        reason=reason.replace("\0", "\ufffd"),  # PostgreSQL stores no NUL in a text
        expires_ms=now_ms + EXPIRES_MS if is_approved else entry.approval.expires_ms,
    )
    return entry._replace(approval=after)


def schedule_notice(entry: ApprovalEntry, now_ms: int) -> ApprovalEntry:
    """Count a claimed notice and set when it may be claimed again."""
    wait_ms = min(NOTICE_MS << min(entry.notices, 10), NOTICE_MS_MOST)
    return entry._replace(notices=entry.notices + 1, notice_ms=now_ms + wait_ms)


def approval_not_found(approval_id: str) -> NotFound:
    """Return the error for an unknown id."""
    return NotFound(f"no approval `{approval_id[:40]}`", hint="list them: `toolgate approvals list`")
