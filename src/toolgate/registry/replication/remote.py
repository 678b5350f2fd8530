"""The queue of invocations as a node reaches it: through control.

A claim whose answer is lost has begun nothing. A report that was not heard is for whoever runs the invocation
to repeat: control passes over what it has heard.

Approvals as a node asks for them: through control.

An answer that is lost may have used an approval up. The call is then not made, and somebody has to agree
anew: rather that than a call that is made twice.

Budgets over time as a node draws on them: through control.

An answer that is lost may have granted calls that are then made by nobody, and tokens that are said again are
counted again: rather that than more than the limit.
"""

from collections.abc import Sequence
from typing import Final, Protocol, cast, get_args

import msgspec

from toolgate.errors import ControlUnavailable
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.invocations import Invocation, InvocationResult, LogLine
from toolgate.model.principals import Principal
from toolgate.model.quotas import LeaseGrant, LeaseRequest
from toolgate.proto import node_pb2
from toolgate.registry.approvals.contract import ApprovalOutcome, ApprovalVerdict, ElicitedDecision
from toolgate.registry.invocations.contract import LeaseVerdict

MAX_WAIT_S: Final = 30.0
LINES_BYTES: Final = 2 * 1024 * 1024
"""In one report, about; a log of more is reported in parts."""

_decode_principal: Final = msgspec.json.Decoder(Principal).decode


class InvocationConnection(Protocol):
    """Control, as far as invocations go. What goes wrong is a ToolgateError."""

    async def claim_invocations(
        self, request: node_pb2.ClaimInvocationsRequest
    ) -> node_pb2.ClaimInvocationsResponse:
        """Those that this node is to run; it may take as long as the request says, and a little more."""

    async def report_invocation(
        self, request: node_pb2.ReportInvocationRequest
    ) -> node_pb2.ReportInvocationResponse:
        """What control says to a report."""


class RemoteInvocations:
    """A `InvocationQueue` over a link to control."""

    def __init__(self, link: InvocationConnection) -> None:
        self._link = link

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        wait_ms = int(min(wait_s, MAX_WAIT_S) * 1000)
        request = node_pb2.ClaimInvocationsRequest(node_id=node_id, limit=limit, wait_ms=wait_ms)
        answer = await self._link.claim_invocations(request)
        return [parse_claimed(sent, node_id) for sent in answer.invocations]

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        *parts, last = _split_lines(lines)
        for part in parts:
            verdict = await self._send(_encode_report_part(invocation_id, attempt, part))
            if verdict == "lost":
                return verdict
        request = _encode_report_part(invocation_id, attempt, last)
        if ending is not None:
            request.ending.CopyFrom(encode_ending(ending))
        return await self._send(request)

    async def _send(self, request: node_pb2.ReportInvocationRequest) -> LeaseVerdict:
        verdict = (await self._link.report_invocation(request)).verdict
        if verdict not in get_args(LeaseVerdict):
            raise ControlUnavailable("control answers a report with something else")
        return cast("LeaseVerdict", verdict)


def parse_claimed(sent: node_pb2.ClaimedInvocation, node_id: str) -> Invocation:
    """An invocation as its node knows it. Raises ControlUnavailable where it cannot be read."""
    try:
        principal = _decode_principal(sent.principal)
    except msgspec.MsgspecError as exc:
        raise ControlUnavailable("control names a principal that this node cannot read") from exc
    return Invocation(
        invocation_id=sent.invocation_id,
        task_id=sent.task_id,
        principal=principal,
        revision=sent.revision,
        input=sent.input,
        created_ms=sent.created_ms,
        retries=sent.retries,
        state="running",
        attempt=sent.attempt,
        node_id=node_id,
        lease_until_ms=sent.lease_until_ms,
    )


def encode_ending(ending: InvocationResult) -> node_pb2.Ending:
    """An ending as it is sent."""
    usage = ending.usage
    return node_pb2.Ending(
        state=ending.state,
        ended_by=ending.ended_by,
        exit_code=ending.exit_code,
        message=ending.message,
        stdout=ending.stdout,
        stderr=ending.stderr,
        is_truncated=ending.is_truncated,
        usage=node_pb2.RunUsage(
            fuel=usage.fuel,
            wall_ms=usage.wall_ms,
            memory_bytes=usage.memory_bytes,
            hostcalls=usage.hostcalls,
            tool_calls=usage.tool_calls,
            model_asks=usage.model_asks,
        ),
        calls=[
            node_pb2.CallMade(server_id=call.server_id, tool=call.tool, code=call.code, ms=call.ms)
            for call in ending.calls
        ],
    )


def _encode_report_part(
    invocation_id: str, attempt: int, lines: Sequence[node_pb2.LogLine]
) -> node_pb2.ReportInvocationRequest:
    return node_pb2.ReportInvocationRequest(invocation_id=invocation_id, attempt=attempt, lines=lines)


def _split_lines(lines: Sequence[LogLine]) -> list[list[node_pb2.LogLine]]:
    """The lines as they are sent, at least one part of them."""
    parts: list[list[node_pb2.LogLine]] = [[]]
    size = 0
    for line in lines:
        sent = node_pb2.LogLine(
            seq=line.seq, at_ms=line.at_ms, stream=line.stream, level=line.level, text=line.text
        )
        if size and size + sent.ByteSize() > LINES_BYTES:
            parts.append([])
            size = 0
        size += sent.ByteSize()
        parts[-1].append(sent)
    return parts


class ApprovalConnection(Protocol):
    """Control, as far as approvals go. What goes wrong is a ToolgateError."""

    async def ask_approval(self, request: node_pb2.AskApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says to a question."""

    async def decide_approval(self, request: node_pb2.DecideApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says to a question that was answered in place."""


class RemoteApprovals:
    """A `ApprovalService` over a link to control."""

    def __init__(self, link: ApprovalConnection) -> None:
        self._link = link

    async def ask(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
        return _parse_verdict(await self._link.ask_approval(_encode_question(question, new_id)))

    async def settle(
        self, question: ApprovalRequest, said: ElicitedDecision, *, new_id: str
    ) -> ApprovalVerdict:
        sent = _encode_question(question, new_id)
        return _parse_verdict(
            await self._link.decide_approval(
                node_pb2.DecideApprovalRequest(
                    question=sent, approval_id=said.approval_id, is_approved=said.is_approved
                )
            )
        )


def _encode_question(question: ApprovalRequest, new_id: str) -> node_pb2.AskApprovalRequest:
    return node_pb2.AskApprovalRequest(
        new_id=new_id,
        principal=question.principal,
        task_id=question.task_id,
        server_id=question.server_id,
        tool=question.tool,
        arguments_digest=question.arguments_digest,
        definition=question.definition,
        arguments=question.arguments,
        why=question.why,
        session=question.session,
        door=question.door,
        round=question.round,
    )


def _parse_verdict(answer: node_pb2.AskApprovalResponse) -> ApprovalVerdict:
    # A newer control may know more answers than we do: none of them lets a call pass.
    outcome = (
        cast("ApprovalOutcome", answer.outcome) if answer.outcome in get_args(ApprovalOutcome) else "waiting"
    )
    return ApprovalVerdict(
        outcome,
        answer.approval_id,
        answer.expires_ms,
        answer.reason,
        in_place=answer.in_place,
        console_url=answer.console_url,
    )


class QuotaConnection(Protocol):
    """Control, as far as budgets go. What goes wrong is a ToolgateError."""

    async def spend(self, request: node_pb2.SpendRequest) -> node_pb2.SpendResponse:
        """What control grants."""


class RemoteQuotas:
    """A `QuotaSource` over a link to control."""

    def __init__(self, link: QuotaConnection) -> None:
        self._link = link

    async def draw(self, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        sent = [
            node_pb2.Draw(
                kind=one.holder.kind,
                id=one.holder.id,
                budget=one.budget,
                limit=one.limit,
                spent=one.spent,
                returned=one.returned,
                window_ms=one.window_ms,
            )
            for one in draws
        ]
        answer = await self._link.spend(node_pb2.SpendRequest(draws=sent))
        if len(answer.drawn) != len(draws):
            raise ControlUnavailable("control does not say what it grants")
        return [LeaseGrant(one.amount, one.window_ms, one.left_ms) for one in answer.drawn]
