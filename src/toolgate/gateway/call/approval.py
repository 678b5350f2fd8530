"""The one gate in front of calls that a person must agree to. Every door's calls come by here.

Nothing passes that was not approved: where nobody can be asked whether it was, the call is refused. An
approval is used up before the call is sent, wherever it is made. Who decides is others, or the person at the
client that calls, where policy lets it and the client can ask it.
"""

import secrets
import time
from collections.abc import Callable
from typing import Final, NoReturn

from toolgate.audit.events import ApprovalRecorded, ApprovalStep
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import ApprovalDenied, ApprovalRequired, ServerBusy, ServerUnavailable, ToolgateError
from toolgate.gateway.approval_arguments import parse_arguments
from toolgate.gateway.call.parked_calls import ParkableCall
from toolgate.gateway.in_place import Agreement, Asking, ask_person, can_be_asked, encode_elicitation
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route
from toolgate.model.approvals import Question
from toolgate.registry.approval_steps import AGREED, DECLINED
from toolgate.registry.approvals.contract import Desk, Said, Verdict
from toolgate.upstream.connection.contract import ClientSide, Params

CONSOLE_PAGE: Final = "/console/approvals/"
_MAX_SESSION: Final = 200


class Approving:
    """Asks a desk about each call that needs an approval. None: nobody can be asked here."""

    def __init__(self, audit: AuditLog, desk: Desk | None = None, *, console_url: str = "") -> None:
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
        client: ClientSide | None = None,
        recheck: Callable[[], bool] = lambda: True,
    ) -> None:
        """Returns where the call may be made, now and once. The person at `client` is asked where it may be.

        A person takes time, in which much may change: `recheck` then says whether the tool is still what it
        was, and raises what the call is refused with by now.
        Raises ApprovalRequired, ApprovalDenied, InvalidArguments, ServerBusy where too much waits, and
        ServerUnavailable where nobody can be asked.
        """
        arguments = parse_arguments(params.get("arguments"), route.redaction)
        question = Question(
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
        self, question: Question, client: ClientSide | None, recheck: Callable[[], bool]
    ) -> Verdict:
        """What comes of a question. `client`: whose person may decide; None: only others do."""
        if isinstance(client, ParkableCall) and client.agreement is not None:
            return await self._heed(question, client.agreement)
        verdict = await self._ask(question)
        if client is None or verdict.outcome not in {"asked", "waiting"} or not can_be_asked(client):
            return verdict
        asking = Asking(encode_elicitation(question, verdict.approval_id), verdict)
        if isinstance(client, ParkableCall):
            client.asking = asking
            return verdict
        action = await ask_person(client, asking.elicitation)
        if action == "accept" and not recheck():
            return verdict
        return await self._heed(question, Agreement(verdict, action))

    async def _heed(self, question: Question, agreement: Agreement) -> Verdict:
        """Do what the person at the client said. Nothing: it waits for others."""
        if agreement.action == "cancel":
            return agreement.verdict
        said = Said(agreement.verdict.approval_id, agreement.action == "accept")
        verdict = await self._ask(question, said)
        if verdict.in_place:
            step: ApprovalStep = "approved" if said.is_approved else "denied"
            reason = AGREED if said.is_approved else DECLINED
            self._record(question, verdict, step, decided_by=question.principal, reason=reason)
        return verdict

    async def _ask(self, question: Question, said: Said | None = None) -> Verdict:
        if self._desk is None:
            raise _nobody_to_ask()
        new_id = secrets.token_hex(8)
        try:
            if said is None:
                verdict = await self._desk.ask(question, new_id=new_id)
            else:
                verdict = await self._desk.settle(question, said, new_id=new_id)
        except ToolgateError as exc:
            raise _nobody_to_ask() from exc
        if verdict.outcome == "asked":
            self._record(question, verdict, "asked")
        return verdict

    def _refuse(self, question: Question, verdict: Verdict) -> NoReturn:
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
        url = f"{self._console_url or verdict.console_url}{CONSOLE_PAGE}{approval_id}"
        raise ApprovalRequired(
            f"a person must agree to this call of {named} first: it waits for approval `{approval_id}`",
            hint=f"have it approved by `toolgate approvals approve {approval_id}` or at `{url}`, then repeat "
            "the same call",
            data={"approval_id": approval_id, "expires_at_ms": verdict.expires_ms, "url": url},
        )

    def _record(
        self,
        question: Question,
        verdict: Verdict,
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


def _nobody_to_ask() -> ServerUnavailable:
    return ServerUnavailable(
        "this call needs an approval, and whether it has one cannot be asked at the moment",
        hint="try again when the control plane can be reached",
    )
