"""The approval stage: calls that a person must approve first.

Nothing passes unapproved: if no one can be asked whether a call is approved, it is refused. An approval is
used up before the call is sent, so it never counts twice (ADR 38). Approvers decide, or the person at the
calling client if policy allows that and the client can ask its user (ADR 43).
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.audit.events import ApprovalRecorded, ApprovalStep
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import (
    ApprovalDenied,
    ApprovalRequired,
    InvalidArguments,
    ServerBusy,
    ServerUnavailable,
    ToolgateError,
)
from toolgate.gateway.call import ADMITTED, Admission, CallContext, Denial, elicitation
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.routes import Route
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import describe_ambiguity, find_clash
from toolgate.redaction.arguments import DEFAULT_REDACTION, Members, Redaction, parse_members
from toolgate.registry.approvals import AGREED, DECLINED, ApprovalService, ApprovalVerdict, ElicitedDecision
from toolgate.upstream.connection.contract import ClientChannel

APPROVALS_PAGE: Final = "/console/approvals/"
_MAX_SESSION: Final = 200
"""Characters of a session id in an approval request: ours are shorter, clients may invent longer ones."""

_encode_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class ApprovalArguments(NamedTuple):
    """The arguments of a call that needs approval."""

    digest: str
    """Equal exactly if members and values are equal, spelling of numbers included."""
    shown: bytes
    """One JSON object for people, without secrets."""


def parse_approval_arguments(
    raw: msgspec.Raw | None, redaction: Redaction = DEFAULT_REDACTION
) -> ApprovalArguments:
    """Parse strictly: the server gets the caller's bytes, so they must have one reading only.

    With a duplicate name, one call could be approved and another executed. Raises InvalidArguments.
    """
    try:
        members = parse_members(b"{}" if raw is None else bytes(raw), _unambiguous_members)
        canonical = _encode_canonical(members)
        # Readable JSON may still be nested too deep to be shown.
        shown = redaction.redact_for_approver(members, len(canonical))
        return ApprovalArguments(hashlib.sha256(canonical).hexdigest(), shown)
    except (ValueError, RecursionError) as exc:
        raise InvalidArguments(f"`arguments` cannot be read: {exc}") from exc


def _unambiguous_members(pairs: list[tuple[str, Any]]) -> Members:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has two members of one name")
    clash = find_clash(members)
    if clash is not None:
        raise ValueError(describe_ambiguity(clash, "an object"))
    return members


@dataclass(slots=True)
class ApprovalStage:
    """Admits calls that are approved. Without a `service`, it admits none that needs approval."""

    audit: AuditLog
    service: ApprovalService | None
    console_url: str = ""
    """Base URL of the console; empty: the service knows it."""
    recheck: Callable[[Caller, Route], bool] = lambda _caller, _route: True
    """Whether a route is still what it was after a person took time. Raises what refuses the call now."""
    timeout_s: float = elicitation.APPROVAL_TIMEOUT_S
    name: str = "approval"

    def applies_to(self, call: CallContext) -> bool:
        return call.route.approval is not None

    async def admit(self, call: CallContext) -> Admission | Denial:
        """Admit an approved call, once. Raises InvalidArguments, ServerUnavailable, ServerBusy."""
        route, trace, caller = call.route, call.trace, call.view.caller
        required = route.approval
        assert required is not None  # see `applies_to`
        arguments = parse_approval_arguments(call.params.get("arguments"), route.redaction)
        request = ApprovalRequest(
            principal=caller.principal.id,
            task_id=caller.effective_task_id or "",
            server_id=route.server_id,
            tool=route.name,
            arguments_digest=arguments.digest,
            definition=route.digest,
            arguments=arguments.shown,
            why=required.rule,
            session=trace.session[:_MAX_SESSION],
            door=trace.door,
            round=trace.round,
        )
        # A later round carries the answers to its server's questions and has no room for ours.
        may_elicit = required.in_place and not trace.round
        verdict = await self._find_verdict(call, request, call.client if may_elicit else None)
        if verdict.outcome == "granted":
            self._record(request, "used", verdict.approval_id)
            return ADMITTED
        if verdict.outcome == "full":
            raise ServerBusy(
                "too many calls wait for an approval already",
                hint="have those decided on first: `toolgate approvals list` shows them",
            )
        return Denial(self._denial_error(request, verdict), required.layer, required.rule)

    async def _find_verdict(
        self, call: CallContext, request: ApprovalRequest, client: ClientChannel | None
    ) -> ApprovalVerdict:
        """The verdict on a request. `client`: the one whose user may decide; None: only approvers do."""
        if isinstance(client, elicitation.ParkableCall) and client.elicited is not None:
            return await self._settle(request, client.elicited)
        verdict = await self._query(request, None)
        if client is None or verdict.outcome not in {"asked", "waiting"}:
            return verdict
        capabilities = client.capabilities
        if capabilities == b"{}" or not elicitation.can_respond(capabilities, elicitation.ELICIT, b"{}"):
            return verdict
        question = elicitation.encode_elicitation(request, verdict.approval_id)
        if isinstance(client, elicitation.ParkableCall):
            client.elicitation_due = elicitation.ApprovalElicitation(question, verdict)
            return verdict
        action = await elicitation.elicit_approval(client, question, self.timeout_s)
        if action == "accept" and not self.recheck(call.view.caller, call.route):
            return verdict
        return await self._settle(request, elicitation.ElicitedResponse(verdict, action))

    async def _settle(
        self, request: ApprovalRequest, answer: elicitation.ElicitedResponse
    ) -> ApprovalVerdict:
        """Apply the answer of the client's user. A cancelled dialog leaves the decision to approvers."""
        if answer.action == "cancel":
            return answer.verdict
        is_approved = answer.action == "accept"
        verdict = await self._query(request, ElicitedDecision(answer.verdict.approval_id, is_approved))
        if verdict.in_place:
            step: ApprovalStep = "approved" if is_approved else "denied"
            self._record(request, step, verdict.approval_id, AGREED if is_approved else DECLINED)
        return verdict

    async def _query(self, request: ApprovalRequest, decision: ElicitedDecision | None) -> ApprovalVerdict:
        if self.service is None:
            raise _approvals_unavailable()
        new_id = secrets.token_hex(8)
        try:
            if decision is None:
                verdict = await self.service.request(request, new_id=new_id)
            else:
                verdict = await self.service.settle(request, decision, new_id=new_id)
        except ToolgateError as exc:
            raise _approvals_unavailable() from exc
        if verdict.outcome == "asked":
            self._record(request, "asked", verdict.approval_id)
        return verdict

    def _denial_error(self, request: ApprovalRequest, verdict: ApprovalVerdict) -> ToolgateError:
        approval_id, tool = verdict.approval_id, f"`{request.server_id}.{request.tool}`"
        if verdict.outcome == "denied":
            return ApprovalDenied(
                f"a person denied this call of {tool}: {verdict.reason or 'no reason given'}",
                data={"approval_id": approval_id, "reason": verdict.reason},
            )
        url = f"{self.console_url or verdict.console_url}{APPROVALS_PAGE}{approval_id}"
        return ApprovalRequired(
            f"a person must approve this call of {tool} first: it waits for approval `{approval_id}`",
            hint=f"have it approved by `toolgate approvals approve {approval_id}` or at `{url}`, then repeat "
            "the same call",
            data={"approval_id": approval_id, "expires_at_ms": verdict.expires_ms, "url": url},
        )

    def _record(self, request: ApprovalRequest, step: ApprovalStep, approval_id: str, why: str = "") -> None:
        """`why`: the reason of the caller's own user, if that decided."""
        at_ms, by = int(time.time() * 1e3), request.principal if why else ""
        self.audit.record(build_approval_event(request, step, approval_id, at_ms=at_ms, by=by, reason=why))


def build_approval_event(
    request: ApprovalRequest, step: ApprovalStep, approval_id: str, *, at_ms: int, by: str, reason: str
) -> ApprovalRecorded:
    return ApprovalRecorded(
        at_ms=at_ms,
        approval_id=approval_id,
        state=step,
        principal=request.principal,
        task_id=request.task_id,
        server_id=request.server_id,
        tool=request.tool,
        decided_by=by,
        reason=reason,
    )


def _approvals_unavailable() -> ServerUnavailable:
    return ServerUnavailable(
        "this call needs an approval, and the control plane cannot be asked for one at the moment",
        hint="try again when the control plane can be reached",
    )
