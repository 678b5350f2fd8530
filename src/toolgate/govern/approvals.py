"""Approvals of calls: who may decide, the recorded decision, and the webhook of an operator's program.

No principal approves its own call, except the local administrator, whom this machine trusts. A principal may
deny its own call. A key sees and decides only approvals within its ceiling.

The webhook posts each pending approval to one URL until the receiver acknowledges it. One replica at a time
posts an approval. The receiver decides in its response, or later by a request that it signs as the gateway
does. The secret is never sent or logged.
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Final, Literal

import msgspec
from pydantic import Field, ValidationError, field_validator

from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Conflict, Forbidden, NotFound, ToolgateError
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.call.approval import APPROVALS_PAGE, build_approval_event
from toolgate.govern.changes.permissions import may_decide
from toolgate.govern.control import Control
from toolgate.model.approvals import MAX_REASON, ApprovalState, CallApproval
from toolgate.model.json_text import UNREADABLE
from toolgate.model.principals import Principal
from toolgate.policy.resolve import NO_CEILING
from toolgate.registry.approvals import approval_not_found
from toolgate.registry.approvals.sql import Approvals
from toolgate.registry.records.body import StrictBody
from toolgate.upstream.http.client_connection import HttpResponse
from toolgate.upstream.http.fetch import Fetcher, FetchFailed


def audit_outcome(audit: AuditLog, ended: CallApproval, *, at_ms: int) -> None:
    """Audit an approval that was decided or has expired."""
    assert ended.state != "pending"
    request, by, reason = ended.question, ended.decided_by, ended.reason
    event = build_approval_event(request, ended.state, ended.approval_id, at_ms=at_ms, by=by, reason=reason)
    audit.record(event)


SIGNATURE: Final = "Toolgate-Signature"
WINDOW_S: Final = 300
"""How much the time of a signature may differ from now: allows for clock skew, and limits replays."""
EVERY_S: Final = 1.0  # between polls for pending approvals: the delay until the receiver is notified
MAX_CONCURRENT_POSTS: Final = 8  # a choice: a receiver is one small program
MAX_NAME: Final = 100  # a choice: people and groups have shorter names

_SIGNED: Final = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")
_log = logging.getLogger(__name__)


class DecisionBody(StrictBody):
    """A decision of the webhook's receiver."""

    approval_id: str = ""
    """Id of the approval. Optional in a response."""

    decision: Literal["approved", "denied"]
    """Whether the call is approved."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """The reason, for the audit log. A denied caller gets it, too."""

    by: Annotated[str, Field(max_length=MAX_NAME)] = ""
    """The receiver's name of the person who decided. The audit log has it as `webhook:<by>`."""

    @field_validator("by")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("contains characters that are not printable")
        return value


class BodySigner:
    """Signs bodies with the current time, and verifies such signatures."""

    def __init__(self, secret: str, clock_ms: Callable[[], int]) -> None:
        self._secret = secret.encode()
        self.clock_ms = clock_ms

    def sign(self, body: bytes) -> str:
        """The value of the signature header."""
        at_s = self.clock_ms() // 1000
        return f"t={at_s},v1={self._mac(at_s, body)}"

    def is_signed(self, body: bytes, signature: str | None) -> bool:
        """Whether the signature is valid and recent."""
        found = None if signature is None else _SIGNED.fullmatch(signature)
        if found is None:
            return False
        at_s = int(found[1])
        is_valid = hmac.compare_digest(found[2], self._mac(at_s, body))
        return is_valid and abs(self.clock_ms() // 1000 - at_s) <= WINDOW_S

    def _mac(self, at_s: int, body: bytes) -> str:
        return hmac.digest(self._secret, b"%d.%b" % (at_s, body), "sha256").hex()


@dataclass(eq=False, repr=False, slots=True)
class ApprovalWebhook:
    """Notifies one receiver of pending approvals, and records its decisions."""

    url: str
    signer: BodySigner
    _: KW_ONLY
    approvals: Approvals
    audit: AuditLog
    fetcher: Fetcher
    own_url: Callable[[], str]
    """URL of this process for people and the receiver; empty if it is not known."""
    _is_failing: bool = field(default=False, init=False)

    async def decide(self, approval_id: str, sent: DecisionBody) -> CallApproval:
        """Record the receiver's decision. Raises NotFound, and Conflict if the approval is not pending."""
        by, is_approved = f"webhook:{sent.by}" if sent.by else "webhook", sent.decision == "approved"
        decided = await self.approvals.decide(approval_id, is_approved=is_approved, by=by, reason=sent.reason)
        audit_outcome(self.audit, decided, at_ms=self.signer.clock_ms())
        return decided

    async def run(self) -> None:
        """Notify the receiver until cancelled. A notification that fails is sent again."""
        while True:
            try:
                count = await self.notify_pending()
            except Exception:  # a bug in one notification must not stop all others
                _log.exception("the approval webhook failed; retrying")
                count = 0
            if not count:
                await asyncio.sleep(EVERY_S)

    async def notify_pending(self) -> int:
        """Notify of the pending approvals that no other replica claimed. Returns their number, sent or
        not."""
        try:
            waiting = await self.approvals.claim_notices(limit=MAX_CONCURRENT_POSTS)
        except ToolgateError as exc:
            self._note_failure(exc)
            return 0
        await asyncio.gather(*map(self._notify, waiting))
        return len(waiting)

    async def _notify(self, approval: CallApproval) -> None:
        try:
            decision = _parse_decision(await self._post(approval), approval.approval_id)
            if decision is not None:
                try:
                    await self.decide(approval.approval_id, decision)
                except (Conflict, NotFound) as exc:
                    _log.info("the approval webhook decided too late: %s", exc)
            # Last: if this process ends earlier, another one notifies again while the approval is pending.
            await self.approvals.mark_notified(approval.approval_id)
            self._is_failing = False
        except (FetchFailed, ToolgateError) as exc:
            self._note_failure(exc)

    async def _post(self, approval: CallApproval) -> HttpResponse:
        question, own_url = approval.question, self.own_url()
        body = msgspec.json.encode(
            {
                "event": "approval_asked",
                "approval_id": approval.approval_id,
                "principal": question.principal,
                "task_id": question.task_id or None,
                "server_id": question.server_id,
                "tool": question.tool,
                "arguments": msgspec.Raw(question.arguments),
                "arguments_digest": question.arguments_digest,
                "why": question.why,
                "door": question.door,
                "created_ms": approval.created_ms,
                "expires_ms": approval.expires_ms,
                "console_url": f"{own_url}{APPROVALS_PAGE}{approval.approval_id}",
                "decision_url": f"{own_url}/admin/api/approvals/{approval.approval_id}/decision",
            }
        )
        response = await self.fetcher.post_json(self.url, body, {SIGNATURE: self.signer.sign(body)})
        if not 200 <= response.status < 300:
            raise FetchFailed(f"the receiver responded with status {response.status}")
        return response

    def _note_failure(self, failure: Exception) -> None:
        """Log the first failure of an outage: the webhook is retried every second."""
        if not self._is_failing:
            _log.warning("cannot reach the approval webhook; retrying: %s", failure)
        self._is_failing = True


def _parse_decision(response: HttpResponse, approval_id: str) -> DecisionBody | None:
    """The decision in a response. None: the receiver only acknowledges, or the response is invalid."""
    try:
        members = msgspec.json.decode(response.body, type=dict[str, object]) if response.body else {}
    except UNREADABLE:
        return None  # most likely a text for people
    if "decision" not in members:
        return None
    try:
        decision = DecisionBody.model_validate(members)
    except ValidationError as exc:
        where = ".".join(map(str, exc.errors()[0]["loc"]))
        _log.warning("the approval webhook responded with an invalid decision: `%s`", where)
        return None
    return decision if decision.approval_id in {"", approval_id} else None


READ_AT_ONCE: Final = 500  # approvals per page, for a key that may see only few of thousands


async def list_approvals(
    control: Control, principal: Principal, *, state: ApprovalState | None, before: str | None, limit: int
) -> Sequence[CallApproval]:
    """The approvals that the caller may decide on, the newest first."""
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
    """One approval. Raises NotFound, also for an approval beyond the caller's ceiling."""
    found = await control.store.approvals.get(approval_id)
    if found is None or not may_decide(control, principal, found.question):
        raise approval_not_found(approval_id)
    return found


async def decide_approval(
    control: Control, principal: Principal, approval_id: str, *, is_approved: bool, reason: str
) -> CallApproval:
    """Decide a pending approval.

    Raises NotFound; Conflict if it is no longer pending; Forbidden if the caller approves its own call.
    """
    found = await find_approval(control, principal, approval_id)
    is_own = found.question.principal == principal.id
    if is_approved and is_own and principal != LOCAL_ADMIN:
        raise Forbidden(
            "you cannot approve your own call", hint="ask another approver to decide, or deny the call"
        )
    approvals, by = control.store.approvals, principal.id
    decided = await approvals.decide(approval_id, is_approved=is_approved, by=by, reason=reason)
    audit_outcome(control.gateway.audit, decided, at_ms=control.clock_ms())
    return decided
