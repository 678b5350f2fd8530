"""Approvals, invocations and quotas as a node uses them: requested from the control plane.

A lost response never causes a second call:

- If the response to a claim is lost, nothing has begun. A failed report is repeated, and the control plane
  skips known lines.
- If a verdict is lost, it may have used an approval: the call is not sent, and an approver has to approve it
  again.
- If a grant is lost, it may have counted calls that no node sends, and tokens reported twice are counted
  twice: never more than the limit.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Protocol, TypeVar, cast, get_args

import msgspec
from google.protobuf.message import Message

from toolgate.errors import ControlUnavailable
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.invocations import Invocation, InvocationResult, LogLine
from toolgate.model.principals import LeaseGrant, LeaseRequest, Principal
from toolgate.proto import node_pb2
from toolgate.registry.approvals import ApprovalOutcome, ApprovalVerdict, ElicitedDecision
from toolgate.registry.invocations import LeaseVerdict

CALL_TIMEOUT_S: Final = 10.0  # the limit of a PostgreSQL statement at the control plane
MAX_WAIT_S: Final = 30.0  # of one claim: below the minute after which many proxies end a silent stream
LINES_BYTES: Final = 2 * 1024 * 1024
"""The approximate limit of one report: an eighth of the largest message. A longer log is reported in
parts."""
A = TypeVar("A", bound=Message)
_decode_principal: Final = msgspec.json.Decoder(Principal).decode


class ControlCalls(Protocol):
    """Unary calls of the control plane's `NodeService`."""

    async def call(
        self, method: str, request: Message, response: type[A], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> A:
        """Call `method` and return its response. Raises a ToolgateError."""


class RemoteServices:
    """The `InvocationQueue`, `ApprovalService` and `QuotaSource` of the control plane."""

    def __init__(self, control: ControlCalls) -> None:
        self._control = control

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        wait_s = min(wait_s, MAX_WAIT_S)
        request = node_pb2.ClaimInvocationsRequest(node_id=node_id, limit=limit, wait_ms=int(wait_s * 1000))
        found = await self._control.call(
            "ClaimInvocations", request, node_pb2.ClaimInvocationsResponse, timeout_s=CALL_TIMEOUT_S + wait_s
        )
        return [parse_claimed(sent, node_id) for sent in found.invocations]

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        *parts, last = [
            node_pb2.ReportInvocationRequest(invocation_id=invocation_id, attempt=attempt, lines=part)
            for part in _split_lines(lines)
        ]
        for part in parts:
            if (verdict := await self._send_report(part)) == "lost":
                return verdict
        if ending is not None:
            last.ending.CopyFrom(node_pb2.Ending(**asdict(ending)))
        return await self._send_report(last)

    async def _send_report(self, request: node_pb2.ReportInvocationRequest) -> LeaseVerdict:
        response = await self._control.call("ReportInvocation", request, node_pb2.ReportInvocationResponse)
        if response.verdict not in get_args(LeaseVerdict):
            raise ControlUnavailable("the control plane returned an unknown verdict")
        return cast("LeaseVerdict", response.verdict)

    async def request(self, request: ApprovalRequest, /, *, new_id: str) -> ApprovalVerdict:
        sent = node_pb2.AskApprovalRequest(new_id=new_id, **asdict(request))
        return await self._request_approval("AskApproval", sent)

    async def settle(
        self, request: ApprovalRequest, decision: ElicitedDecision, /, *, new_id: str
    ) -> ApprovalVerdict:
        question = node_pb2.AskApprovalRequest(new_id=new_id, **asdict(request))
        sent = node_pb2.DecideApprovalRequest(question=question, **decision._asdict())
        return await self._request_approval("DecideApproval", sent)

    async def _request_approval(self, method: str, request: Message) -> ApprovalVerdict:
        response = await self._control.call(method, request, node_pb2.AskApprovalResponse)
        # A newer control plane may have other outcomes. None of them allows a call.
        is_known = response.outcome in get_args(ApprovalOutcome)
        outcome = cast("ApprovalOutcome", response.outcome) if is_known else "waiting"
        others: dict[str, Any] = {name: getattr(response, name) for name in ApprovalVerdict._fields[1:]}
        return ApprovalVerdict(outcome, **others)

    async def draw(self, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        request = node_pb2.SpendRequest()
        for one in requests:
            sent = one._asdict()
            request.draws.add(**sent.pop("holder")._asdict(), **sent)
        response = await self._control.call("Spend", request, node_pb2.SpendResponse)
        if len(response.drawn) != len(requests):
            raise ControlUnavailable("the control plane returned too few grants")
        return [LeaseGrant(one.amount, one.window_ms, one.left_ms) for one in response.drawn]


def parse_claimed(sent: node_pb2.ClaimedInvocation, node_id: str) -> Invocation:
    try:
        principal = _decode_principal(sent.principal)
    except msgspec.MsgspecError as exc:
        raise ControlUnavailable("the control plane sent a principal that this node cannot read") from exc
    fields = {field.name: getattr(sent, field.name) for field in sent.DESCRIPTOR.fields}
    return Invocation(state="running", node_id=node_id, **fields | {"principal": principal})


def _split_lines(lines: Sequence[LogLine]) -> list[list[node_pb2.LogLine]]:
    """Encode lines in parts of about `LINES_BYTES`, at least one part."""
    parts: list[list[node_pb2.LogLine]] = [[]]
    size = 0
    for line in lines:
        sent = node_pb2.LogLine(**asdict(line))
        if size and size + sent.ByteSize() > LINES_BYTES:
            parts.append([])
            size = 0
        size += sent.ByteSize()
        parts[-1].append(sent)
    return parts
