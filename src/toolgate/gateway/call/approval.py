"""The approval stage: holds calls that a person must approve first.

If the stage cannot reach the approval service, the call fails: no call passes without an approval. An
approval is used up before the call is sent, so it never counts twice (ADR 38). Approvers decide. The client's
user decides if policy allows elicited approvals and the client supports elicitation (ADR 43).
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from toolgate import errors
from toolgate.audit.events import ApprovalRecorded, ApprovalStep
from toolgate.audit.log.writer import AuditLog
from toolgate.gateway.call import ADMITTED, Admission, CallContext, Denial, elicitation
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.routes import Route
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import describe_ambiguity, encode_canonical, find_clash
from toolgate.redaction.arguments import DEFAULT_REDACTION, Members, Redaction, parse_members
from toolgate.registry.approvals import AGREED, DECLINED, ApprovalService, ApprovalVerdict, ElicitedDecision
from toolgate.upstream.connection.contract import ClientChannel

APPROVALS_PAGE: Final = "/console/approvals/"
_MAX_SESSION: Final = 200
"""Characters of a session id in an approval request: Toolgate's are shorter, clients may send longer ones."""


class ApprovalArguments(NamedTuple):
    """The arguments of a call that needs approval."""

    digest: str
    """Equal exactly if members and values are equal, including the spelling of numbers."""
    shown: bytes
    """One JSON object for approvers, with secrets masked."""


def parse_approval_arguments(
    raw: msgspec.Raw | None, redaction: Redaction = DEFAULT_REDACTION
) -> ApprovalArguments:
    """Parse strictly: the server gets the caller's bytes, so every reader must read them alike.

    With a duplicate member, a person could approve one call and the server execute another. Raises
    InvalidArguments.
    """
    try:
        members = parse_members(b"{}" if raw is None else bytes(raw), _unambiguous_members)
        canonical = encode_canonical(members)
        # Valid JSON may still be nested too deeply to show.
        shown = redaction.redact_for_approver(members, len(canonical))
        return ApprovalArguments(hashlib.sha256(canonical).hexdigest(), shown)
    except (ValueError, RecursionError) as exc:
        raise errors.InvalidArguments(f"`arguments` cannot be read: {exc}") from exc


def _unambiguous_members(pairs: list[tuple[str, Any]]) -> Members:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a duplicate member")
    clash = find_clash(members)
    if clash is not None:
        raise ValueError(describe_ambiguity(clash, "an object"))
    return members


@dataclass(slots=True)
class ApprovalStage:
    """Admits approved calls. Without a `service`, every call that needs an approval fails."""

    audit: AuditLog
    service: ApprovalService | None
    console_url: str = ""
    """Base URL of the console; empty: the service provides it."""
    recheck: Callable[[Caller, Route], bool] = lambda _caller, _route: True
    """Whether a route is unchanged after a person took time. Raises if policy now denies the call."""
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
        # A later round carries the responses to its server's requests and has no room for an approval.
        may_elicit = required.in_place and not trace.round
        verdict = await self._find_verdict(call, request, call.client if may_elicit else None)
        if verdict.outcome == "granted":
            self._record(request, "used", verdict.approval_id)
            return ADMITTED
        if verdict.outcome == "full":
            raise errors.ServerBusy(
                "too many calls are waiting for an approval",
                hint="ask an approver to decide them; `toolgate approvals list` shows them",
            )
        return Denial(self._denial_error(request, verdict), required.layer, required.rule)

    async def _find_verdict(
        self, call: CallContext, request: ApprovalRequest, client: ClientChannel | None
    ) -> ApprovalVerdict:
        """The verdict on a request. `client`: the client whose user may decide; None: approvers only."""
        if isinstance(client, elicitation.ParkableCall) and client.elicited is not None:
            return await self._settle(request, client.elicited)
        verdict = await self._query(request, None)
        if client is None or verdict.outcome not in {"asked", "waiting"}:
            return verdict
        capabilities = client.capabilities
        if capabilities == b"{}" or not elicitation.can_respond(capabilities, elicitation.ELICIT, b"{}"):
            return verdict
        params = elicitation.encode_elicitation(request, verdict.approval_id)
        if isinstance(client, elicitation.ParkableCall):
            client.elicitation_due = elicitation.ApprovalElicitation(params, verdict)
            return verdict
        action = await elicitation.elicit_approval(client, params, self.timeout_s)
        if action == "accept" and not self.recheck(call.view.caller, call.route):
            return verdict
        return await self._settle(request, elicitation.ElicitedResponse(verdict, action))

    async def _settle(
        self, request: ApprovalRequest, response: elicitation.ElicitedResponse
    ) -> ApprovalVerdict:
        """Apply the response of the client's user. If the user cancelled, approvers decide."""
        if response.action == "cancel":
            return response.verdict
        is_approved = response.action == "accept"
        verdict = await self._query(request, ElicitedDecision(response.verdict.approval_id, is_approved))
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
        except errors.ToolgateError as exc:
            raise _approvals_unavailable() from exc
        if verdict.outcome == "asked":
            self._record(request, "asked", verdict.approval_id)
        return verdict

    def _denial_error(self, request: ApprovalRequest, verdict: ApprovalVerdict) -> errors.ToolgateError:
        approval_id, tool = verdict.approval_id, f"`{request.server_id}.{request.tool}`"
        if verdict.outcome == "denied":
            return errors.ApprovalDenied(
                f"an approver denied this call of {tool}: {verdict.reason or 'no reason given'}",
                data={"approval_id": approval_id, "reason": verdict.reason},
            )
        url = f"{self.console_url or verdict.console_url}{APPROVALS_PAGE}{approval_id}"
        return errors.ApprovalRequired(
            f"a person must approve this call of {tool} first: approval `{approval_id}` is pending",
            hint=f"ask an approver to run `toolgate approvals approve {approval_id}` or open `{url}`; then "
            "repeat the same call",
            data={"approval_id": approval_id, "expires_at_ms": verdict.expires_ms, "url": url},
        )

    def _record(self, request: ApprovalRequest, step: ApprovalStep, approval_id: str, why: str = "") -> None:
        """`why`: the reason, if the client's user decided."""
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


def _approvals_unavailable() -> errors.ServerUnavailable:
    return errors.ServerUnavailable(
        "this call needs an approval, and the approval service on the control plane cannot be reached",
        hint="retry when this node reaches the control plane; its log shows the error",
    )
