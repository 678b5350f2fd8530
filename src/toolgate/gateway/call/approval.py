"""The arguments of a call that a person is to agree to: told apart exactly, and shown without their secrets.

A server gets the bytes that its caller sent. So what could be read in two ways is refused: a name that stands
there twice, or that a server may take for another one, would let one call be approved and another be made.

The one gate in front of calls that a person must agree to. Every door's calls come by here.

Nothing passes that was not approved: where nobody can be asked whether it was, the call is refused. An
approval is used up before the call is sent, wherever it is made. Who decides is others, or the person at the
client that calls, where policy lets it and the client can ask it.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

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
from toolgate.gateway.call.elicitation import (
    ApprovalElicitation,
    ElicitedAnswer,
    can_elicit,
    elicit_approval,
    encode_elicitation,
)
from toolgate.gateway.call.parked_calls import ParkableCall
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.json_text import describe_ambiguity, find_clash
from toolgate.redaction.arguments import DEFAULT_REDACTION, Members, Redaction, parse_members
from toolgate.registry.approvals.contract import (
    AGREED,
    DECLINED,
    ApprovalService,
    ApprovalVerdict,
    ElicitedDecision,
)
from toolgate.upstream.connection.contract import ClientChannel, Params

_encode_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class ApprovalArguments(NamedTuple):
    """What is kept of a call's arguments."""

    digest: str
    """Equal exactly where members and values are, spelled numbers included."""
    shown: bytes
    """One JSON object, for people."""


def parse_approval_arguments(
    raw: msgspec.Raw | None, redaction: Redaction = DEFAULT_REDACTION
) -> ApprovalArguments:
    """Raises InvalidArguments."""
    try:
        members = parse_members(b"{}" if raw is None else bytes(raw), _unambiguous_members)
        canonical = _encode_canonical(members)
        # What can be read may still be nested too deep to be shown.
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


APPROVALS_PAGE: Final = "/console/approvals/"
_MAX_SESSION: Final = 200


class ApprovalStage:
    """Asks a desk about each call that needs an approval. None: nobody can be asked here."""

    def __init__(
        self, audit: AuditLog, desk: ApprovalService | None = None, *, console_url: str = ""
    ) -> None:
        """`console_url` is where people reach the console; empty: see `reached_at`, or at control."""
        self._audit = audit
        self._desk = desk
        self._console_url = console_url.rstrip("/")

    def reached_at(self, url: str) -> None:
        """Where people reach the console of this process, unless that was said before."""
        self._console_url = self._console_url or url

    @property
    def console_url(self) -> str:
        """Where people reach the console; empty: not known here."""
        return self._console_url

    async def admit(
        self,
        caller: Caller,
        route: Route,
        params: Params,
        *,
        trace: Trace,
        client: ClientChannel | None = None,
        recheck: Callable[[], bool] = lambda: True,
    ) -> None:
        """Returns where the call may be made, now and once. The person at `client` is asked where it may be.

        A person takes time, in which much may change: `recheck` then says whether the tool is still what it
        was, and raises what the call is refused with by now.
        Raises ApprovalRequired, ApprovalDenied, InvalidArguments, ServerBusy where too much waits, and
        ServerUnavailable where nobody can be asked.
        """
        arguments = parse_approval_arguments(params.get("arguments"), route.redaction)
        question = ApprovalRequest(
            principal=caller.principal.id,
            task_id=caller.effective_task_id or "",
            server_id=route.server_id,
            tool=route.name,
            arguments_digest=arguments.digest,
            definition=route.digest,
            arguments=arguments.shown,
            why="" if route.approval is None else route.approval.rule,
            session=trace.session[:_MAX_SESSION],
            door=trace.door,
            round=trace.round,
        )
        # A round of a call that was made has its server's answers with it, and no room for ours.
        is_in_place = route.approval is not None and route.approval.in_place and not question.round
        verdict = await self._find_verdict(question, client if is_in_place else None, recheck)
        if verdict.outcome == "granted":
            self._record(question, verdict, "used")
            return
        self._refuse(question, verdict)

    async def _find_verdict(
        self, question: ApprovalRequest, client: ClientChannel | None, recheck: Callable[[], bool]
    ) -> ApprovalVerdict:
        """What comes of a question. `client`: whose person may decide; None: only others do."""
        if isinstance(client, ParkableCall) and client.elicited is not None:
            return await self._settle(question, client.elicited)
        verdict = await self._ask(question)
        if client is None or verdict.outcome not in {"asked", "waiting"} or not can_elicit(client):
            return verdict
        asking = ApprovalElicitation(encode_elicitation(question, verdict.approval_id), verdict)
        if isinstance(client, ParkableCall):
            client.asking = asking
            return verdict
        action = await elicit_approval(client, asking.elicitation)
        if action == "accept" and not recheck():
            return verdict
        return await self._settle(question, ElicitedAnswer(verdict, action))

    async def _settle(self, question: ApprovalRequest, agreement: ElicitedAnswer) -> ApprovalVerdict:
        """Do what the person at the client said. Nothing: it waits for others."""
        if agreement.action == "cancel":
            return agreement.verdict
        said = ElicitedDecision(agreement.verdict.approval_id, agreement.action == "accept")
        verdict = await self._ask(question, said)
        if verdict.in_place:
            step: ApprovalStep = "approved" if said.is_approved else "denied"
            reason = AGREED if said.is_approved else DECLINED
            self._record(question, verdict, step, decided_by=question.principal, reason=reason)
        return verdict

    async def _ask(self, question: ApprovalRequest, said: ElicitedDecision | None = None) -> ApprovalVerdict:
        if self._desk is None:
            raise _approvals_unavailable()
        new_id = secrets.token_hex(8)
        try:
            if said is None:
                verdict = await self._desk.ask(question, new_id=new_id)
            else:
                verdict = await self._desk.settle(question, said, new_id=new_id)
        except ToolgateError as exc:
            raise _approvals_unavailable() from exc
        if verdict.outcome == "asked":
            self._record(question, verdict, "asked")
        return verdict

    def _refuse(self, question: ApprovalRequest, verdict: ApprovalVerdict) -> NoReturn:
        approval_id, named = verdict.approval_id, f"`{question.server_id}.{question.tool}`"
        if verdict.outcome == "full":
            raise ServerBusy(
                "too many calls wait for an approval already",
                hint="have those decided on first: `toolgate approvals list` shows them",
            )
        if verdict.outcome == "denied":
            raise ApprovalDenied(
                f"a person denied this call of {named}: {verdict.reason or 'no reason was given'}",
                data={"approval_id": approval_id, "reason": verdict.reason},
            )
        url = f"{self._console_url or verdict.console_url}{APPROVALS_PAGE}{approval_id}"
        raise ApprovalRequired(
            f"a person must agree to this call of {named} first: it waits for approval `{approval_id}`",
            hint=f"have it approved by `toolgate approvals approve {approval_id}` or at `{url}`, then repeat "
            "the same call",
            data={"approval_id": approval_id, "expires_at_ms": verdict.expires_ms, "url": url},
        )

    def _record(
        self,
        question: ApprovalRequest,
        verdict: ApprovalVerdict,
        step: ApprovalStep,
        *,
        decided_by: str = "",
        reason: str = "",
    ) -> None:
        self._audit.record(
            ApprovalRecorded(
                at_ms=int(time.time() * 1e3),
                approval_id=verdict.approval_id,
                state=step,
                principal=question.principal,
                task_id=question.task_id,
                server_id=question.server_id,
                tool=question.tool,
                decided_by=decided_by,
                reason=reason,
            )
        )


def _approvals_unavailable() -> ServerUnavailable:
    return ServerUnavailable(
        "this call needs an approval, and whether it has one cannot be asked at the moment",
        hint="try again when the control plane can be reached",
    )
