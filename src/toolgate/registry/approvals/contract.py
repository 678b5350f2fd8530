"""The contract of approvals: kept beside the records, without revisions.

Any number of nodes ask, through any number of replicas of control on one database, and each approval is used
once by one of them. One suite in `tests/contract/` runs against each implementation.

What becomes of an approval, decided without a store: one in, the one after it out.

Every store keeps exactly what these say, so they cannot differ in meaning.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, Protocol

from toolgate.errors import Conflict, NotFound
from toolgate.model.approvals import ApprovalRequest, ApprovalState, CallApproval

EXPIRES_MS: Final = 15 * 60 * 1000
"""How long a question waits for a decision, and an approval for its call."""
ROUND_MS: Final = 10 * 60 * 1000
"""How long a call that was made may be gone on with."""
MAX_PENDING_EACH: Final = 50
"""Of one principal."""
MAX_PENDING: Final = 1_000
"""Replicas that take one in at the same moment may go past either by one each."""
KEEP_CLOSED: Final = 10_000
KEEP_CLOSED_MS: Final = 30 * 24 * 3600 * 1000

NOTICE_MS: Final = 15_000
"""After so long a question is told of again that nobody has taken note of; then after twice as long."""
NOTICE_MS_MOST: Final = 240_000

ApprovalOutcome = Literal["granted", "asked", "waiting", "denied", "full"]
"""`granted`: the call may be made, now and once. `asked`: a new question waits; `waiting`: one that is known.
`full`: nothing is asked, since too much waits already."""


class ApprovalVerdict(NamedTuple):
    """What comes of a question."""

    outcome: ApprovalOutcome
    approval_id: str = ""
    expires_ms: int = 0
    reason: str = ""
    """Of a denial."""
    in_place: bool = False
    """Who asked has decided itself, with this very answer."""
    console_url: str = ""
    """Where people reach the console of who keeps approvals; empty: not known here."""


class ElicitedDecision(NamedTuple):
    """What the person says who is at the client that calls."""

    approval_id: str
    is_approved: bool


class ApprovalService(Protocol):
    """Approvals as a node sees them."""

    async def ask(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
        """Use the approval there is for this call, or ask for one.

        An approval is used up by the one who is told `granted`, before anything is sent. The same question
        while one waits is that one. A denial is told once; whoever asks after that asks anew. A round of a
        call that was made goes on under its approval, each round once and in its turn.
        """

    async def settle(
        self, question: ApprovalRequest, said: ElicitedDecision, *, new_id: str
    ) -> ApprovalVerdict:
        """As `ask`, after the one who asks this question was asked about it in place.

        What was said counts for the approval it was said of, while that waits for this very question: it is
        decided and used, or decided and told, in one step. Whoever said no gets no `granted`, whatever
        others have decided meanwhile.
        """


class Approvals(ApprovalService, Protocol):
    """All there are."""

    async def decide(self, approval_id: str, *, is_approved: bool, by: str, reason: str) -> CallApproval:
        """Decide on one that is pending. Raises NotFound, and Conflict where that is over.

        What is approved may be used for as long as a question waits, from now on.
        """

    async def get(self, approval_id: str) -> CallApproval | None:
        """One of them."""

    async def list(
        self, *, state: ApprovalState | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[CallApproval]:
        """The newest first; `before` is the id of the last one seen."""

    async def pending(self) -> int:
        """How many wait for a decision."""

    async def expire(self) -> Sequence[CallApproval]:
        """Those whose time is over since this was last asked; each is told of once."""

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        """Questions that wait and that others are still to be told of, the oldest first.

        Each is given to one who asks, and again after a while, longer each time, until it was `noticed`.
        """

    async def noticed(self, approval_id: str) -> None:
        """It was told of: nobody is given it again."""

    async def forget(self) -> None:
        """Drop what was closed long ago, and what there is too much of."""


AGREED: Final = "agreed to in place"
DECLINED: Final = "declined in place"
"""Why, where who asked was asked itself."""


class ApprovalEntry(NamedTuple):
    """An approval with what its store alone knows of it."""

    approval: CallApproval
    is_open: bool = True
    """Whoever asks the same is led to it. Of those with one binding, at most one is."""
    notices: int = 0
    """How often somebody was given it to tell others of it."""
    notice_ms: int = 0
    """From then on it may be given to somebody again."""
    notified_ms: int | None = None
    """When others were told of it."""


class ApprovalTransition(NamedTuple):
    """What a question comes to. `verdict` None: it is to be asked anew."""

    entry: ApprovalEntry
    verdict: ApprovalVerdict | None


def is_expired(approval: CallApproval, now_ms: int) -> bool:
    """Whether its time has come, and its state does not say so yet."""
    return approval.state in {"pending", "approved"} and approval.expires_ms <= now_ms


def as_of(approval: CallApproval, now_ms: int) -> CallApproval:
    """As it is to be shown."""
    return replace(approval, state="expired") if is_expired(approval, now_ms) else approval


def open_entry(question: ApprovalRequest, *, new_id: str, now_ms: int) -> ApprovalEntry:
    """A new one."""
    return ApprovalEntry(
        CallApproval(approval_id=new_id, question=question, created_ms=now_ms, expires_ms=now_ms + EXPIRES_MS)
    )


def answer_again(entry: ApprovalEntry, now_ms: int) -> ApprovalTransition:
    """One that is open, when its question is asked again."""
    known = as_of(entry.approval, now_ms)
    if known.state == "pending":
        return ApprovalTransition(entry, make_verdict(known, "waiting"))
    if known.state == "approved":
        used = replace(known, state="used", used_ms=now_ms)
        return ApprovalTransition(entry._replace(approval=used, is_open=False), make_verdict(used, "granted"))
    is_denied = known.state == "denied" and now_ms < known.expires_ms
    told = make_verdict(known, "denied") if is_denied else None
    return ApprovalTransition(entry._replace(approval=known, is_open=False), told)


def apply_elicited(entry: ApprovalEntry, said: ElicitedDecision, now_ms: int) -> ApprovalTransition:
    """One that is open, when the one who asks its question has said something to it."""
    state = as_of(entry.approval, now_ms).state
    is_taken_back = state == "approved" and not said.is_approved
    if state == "pending" or is_taken_back:
        after = _record_decision(
            entry,
            is_approved=said.is_approved,
            by=entry.approval.question.principal,
            reason=AGREED if said.is_approved else DECLINED,
            now_ms=now_ms,
        )
        told = answer_again(after, now_ms)
        assert told.verdict is not None  # its time is not over
        return told._replace(verdict=told.verdict._replace(in_place=True))
    told = answer_again(entry, now_ms)
    return told if told.verdict or said.is_approved else told._replace(verdict=declined_verdict(said))


def declined_verdict(said: ElicitedDecision) -> ApprovalVerdict:
    """What who has said no is told, where that decides nothing any more."""
    return ApprovalVerdict("denied", said.approval_id, reason=DECLINED)


def continues_call(used: CallApproval, question: ApprovalRequest, now_ms: int) -> bool:
    """Whether `question` is the next round of the call that `used` was used for."""
    is_recent = used.used_ms is not None and now_ms - used.used_ms < ROUND_MS
    return is_recent and used.rounds + 1 == question.round


def count_round(used: CallApproval) -> CallApproval:
    """A call that was made, after it went on."""
    return replace(used, rounds=used.rounds + 1)


def make_verdict(approval: CallApproval, outcome: ApprovalOutcome) -> ApprovalVerdict:
    """What whoever asks is told of it."""
    reason = approval.reason if outcome == "denied" else ""
    return ApprovalVerdict(outcome, approval.approval_id, approval.expires_ms, reason)


def has_room(*, own: int, all_pending: int) -> bool:
    """Whether one more may wait."""
    return own < MAX_PENDING_EACH and all_pending < MAX_PENDING


def decide_entry(
    entry: ApprovalEntry, *, is_approved: bool, by: str, reason: str, now_ms: int
) -> ApprovalEntry:
    """One that somebody decided on. Raises Conflict."""
    known = as_of(entry.approval, now_ms)
    if known.state != "pending":
        raise Conflict(
            f"the approval `{known.approval_id}` is {known.state} already",
            hint="whoever repeats the call asks for a new one",
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
        reason=reason.replace("\0", "\ufffd"),  # PostgreSQL keeps no NUL in a text
        expires_ms=now_ms + EXPIRES_MS if is_approved else entry.approval.expires_ms,
    )
    return entry._replace(approval=after)


def needs_notice(entry: ApprovalEntry, now_ms: int) -> bool:
    """Whether somebody may be given it to tell others of it."""
    is_due = entry.notified_ms is None and entry.notice_ms <= now_ms
    return is_due and as_of(entry.approval, now_ms).state == "pending"


def schedule_notice(entry: ApprovalEntry, now_ms: int) -> ApprovalEntry:
    """One that somebody was given, to tell others of it."""
    wait_ms = min(NOTICE_MS << min(entry.notices, 10), NOTICE_MS_MOST)
    return entry._replace(notices=entry.notices + 1, notice_ms=now_ms + wait_ms)


def approval_not_found(approval_id: str) -> NotFound:
    """There is no such approval."""
    return NotFound(
        f"no approval `{approval_id[:40]}`", hint="`toolgate approvals list` shows those there are"
    )


def duplicate_approval(approval_id: str) -> Conflict:
    """There is such an approval already."""
    return Conflict(f"there is an approval `{approval_id}` already")


def retention_cutoff_ms(now_ms: int) -> int:
    """What was asked for before this, and is closed, is forgotten."""
    return now_ms - KEEP_CLOSED_MS
