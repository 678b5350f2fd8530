"""What becomes of an approval, decided without a store: one in, the one after it out.

Every store keeps exactly what these say, so they cannot differ in meaning.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from toolgate.errors import Conflict, NotFound
from toolgate.model.approvals import CallApproval, Question
from toolgate.registry.approvals.contract import (
    EXPIRES_MS,
    KEEP_CLOSED_MS,
    MAX_PENDING,
    MAX_PENDING_EACH,
    NOTICE_MS,
    NOTICE_MS_MOST,
    ROUND_MS,
    Outcome,
    Said,
    Verdict,
)

AGREED: Final = "agreed to in place"
DECLINED: Final = "declined in place"
"""Why, where who asked was asked itself."""


class Entry(NamedTuple):
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


class Answered(NamedTuple):
    """What a question comes to. `verdict` None: it is to be asked anew."""

    entry: Entry
    verdict: Verdict | None


def is_over(approval: CallApproval, now_ms: int) -> bool:
    """Whether its time has come, and its state does not say so yet."""
    return approval.state in {"pending", "approved"} and approval.expires_ms <= now_ms


def as_of(approval: CallApproval, now_ms: int) -> CallApproval:
    """As it is to be shown."""
    return replace(approval, state="expired") if is_over(approval, now_ms) else approval


def asked(question: Question, *, new_id: str, now_ms: int) -> Entry:
    """A new one."""
    return Entry(
        CallApproval(approval_id=new_id, question=question, created_ms=now_ms, expires_ms=now_ms + EXPIRES_MS)
    )


def answered(entry: Entry, now_ms: int) -> Answered:
    """One that is open, when its question is asked again."""
    known = as_of(entry.approval, now_ms)
    if known.state == "pending":
        return Answered(entry, verdict_of(known, "waiting"))
    if known.state == "approved":
        used = replace(known, state="used", used_ms=now_ms)
        return Answered(entry._replace(approval=used, is_open=False), verdict_of(used, "granted"))
    is_denied = known.state == "denied" and now_ms < known.expires_ms
    told = verdict_of(known, "denied") if is_denied else None
    return Answered(entry._replace(approval=known, is_open=False), told)


def settled(entry: Entry, said: Said, now_ms: int) -> Answered:
    """One that is open, when the one who asks its question has said something to it."""
    state = as_of(entry.approval, now_ms).state
    is_taken_back = state == "approved" and not said.is_approved
    if state == "pending" or is_taken_back:
        after = _decided(
            entry,
            is_approved=said.is_approved,
            by=entry.approval.question.principal,
            reason=AGREED if said.is_approved else DECLINED,
            now_ms=now_ms,
        )
        told = answered(after, now_ms)
        assert told.verdict is not None  # its time is not over
        return told._replace(verdict=told.verdict._replace(in_place=True))
    told = answered(entry, now_ms)
    return told if told.verdict or said.is_approved else told._replace(verdict=declined(said))


def declined(said: Said) -> Verdict:
    """What who has said no is told, where that decides nothing any more."""
    return Verdict("denied", said.approval_id, reason=DECLINED)


def goes_on(used: CallApproval, question: Question, now_ms: int) -> bool:
    """Whether `question` is the next round of the call that `used` was used for."""
    is_recent = used.used_ms is not None and now_ms - used.used_ms < ROUND_MS
    return is_recent and used.rounds + 1 == question.round


def next_round(used: CallApproval) -> CallApproval:
    """A call that was made, after it went on."""
    return replace(used, rounds=used.rounds + 1)


def verdict_of(approval: CallApproval, outcome: Outcome) -> Verdict:
    """What whoever asks is told of it."""
    reason = approval.reason if outcome == "denied" else ""
    return Verdict(outcome, approval.approval_id, approval.expires_ms, reason)


def has_room(*, own: int, all_pending: int) -> bool:
    """Whether one more may wait."""
    return own < MAX_PENDING_EACH and all_pending < MAX_PENDING


def decided(entry: Entry, *, is_approved: bool, by: str, reason: str, now_ms: int) -> Entry:
    """One that somebody decided on. Raises Conflict."""
    known = as_of(entry.approval, now_ms)
    if known.state != "pending":
        raise Conflict(
            f"the approval `{known.approval_id}` is {known.state} already",
            hint="whoever repeats the call asks for a new one",
        )
    return _decided(entry, is_approved=is_approved, by=by, reason=reason, now_ms=now_ms)


def _decided(entry: Entry, *, is_approved: bool, by: str, reason: str, now_ms: int) -> Entry:
    after = replace(
        entry.approval,
        state="approved" if is_approved else "denied",
        decided_by=by,
        decided_ms=now_ms,
        reason=reason.replace("\0", "\ufffd"),  # PostgreSQL keeps no NUL in a text
        expires_ms=now_ms + EXPIRES_MS if is_approved else entry.approval.expires_ms,
    )
    return entry._replace(approval=after)


def is_to_be_told(entry: Entry, now_ms: int) -> bool:
    """Whether somebody may be given it to tell others of it."""
    is_due = entry.notified_ms is None and entry.notice_ms <= now_ms
    return is_due and as_of(entry.approval, now_ms).state == "pending"


def given(entry: Entry, now_ms: int) -> Entry:
    """One that somebody was given, to tell others of it."""
    wait_ms = min(NOTICE_MS << min(entry.notices, 10), NOTICE_MS_MOST)
    return entry._replace(notices=entry.notices + 1, notice_ms=now_ms + wait_ms)


def unknown(approval_id: str) -> NotFound:
    """There is no such approval."""
    return NotFound(
        f"no approval `{approval_id[:40]}`", hint="`toolgate approvals list` shows those there are"
    )


def taken_id(approval_id: str) -> Conflict:
    """There is such an approval already."""
    return Conflict(f"there is an approval `{approval_id}` already")


def forgotten_before_ms(now_ms: int) -> int:
    """What was asked for before this, and is closed, is forgotten."""
    return now_ms - KEEP_CLOSED_MS
