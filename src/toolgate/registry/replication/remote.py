"""The queue of invocations as a node reaches it: through control.

A claim whose answer is lost has begun nothing. A report that was not heard is for whoever runs the invocation
to repeat: control passes over what it has heard.
"""

from collections.abc import Sequence
from typing import Final, Protocol, cast, get_args

import msgspec

from toolgate.errors import ControlUnavailable
from toolgate.model.invocations import Ending, Invocation, LogLine
from toolgate.model.principals import Principal
from toolgate.proto import node_pb2
from toolgate.registry.invocations.contract import Verdict

MAX_WAIT_S: Final = 30.0
LINES_BYTES: Final = 2 * 1024 * 1024
"""In one report, about; a log of more is reported in parts."""

_decode_principal: Final = msgspec.json.Decoder(Principal).decode


class QueueLink(Protocol):
    """Control, as far as invocations go. What goes wrong is a ToolgateError."""

    async def claim_invocations(
        self, request: node_pb2.ClaimInvocationsRequest
    ) -> node_pb2.ClaimInvocationsResponse:
        """Those that this node is to run; it may take as long as the request says, and a little more."""

    async def report_invocation(
        self, request: node_pb2.ReportInvocationRequest
    ) -> node_pb2.ReportInvocationResponse:
        """What control says to a report."""


class ControlQueue:
    """A `Queue` over a link to control."""

    def __init__(self, link: QueueLink) -> None:
        self._link = link

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        wait_ms = int(min(wait_s, MAX_WAIT_S) * 1000)
        request = node_pb2.ClaimInvocationsRequest(node_id=node_id, limit=limit, wait_ms=wait_ms)
        answer = await self._link.claim_invocations(request)
        return [parse_claimed(sent, node_id) for sent in answer.invocations]

    async def report(
        self, invocation_id: str, attempt: int, *, lines: Sequence[LogLine] = (), ending: Ending | None = None
    ) -> Verdict:
        *parts, last = _parts(lines)
        for part in parts:
            verdict = await self._send(_report(invocation_id, attempt, part))
            if verdict == "lost":
                return verdict
        request = _report(invocation_id, attempt, last)
        if ending is not None:
            request.ending.CopyFrom(encode_ending(ending))
        return await self._send(request)

    async def _send(self, request: node_pb2.ReportInvocationRequest) -> Verdict:
        verdict = (await self._link.report_invocation(request)).verdict
        if verdict not in get_args(Verdict):
            raise ControlUnavailable("control answers a report with something else")
        return cast("Verdict", verdict)


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


def encode_ending(ending: Ending) -> node_pb2.Ending:
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


def _report(
    invocation_id: str, attempt: int, lines: Sequence[node_pb2.LogLine]
) -> node_pb2.ReportInvocationRequest:
    return node_pb2.ReportInvocationRequest(invocation_id=invocation_id, attempt=attempt, lines=lines)


def _parts(lines: Sequence[LogLine]) -> list[list[node_pb2.LogLine]]:
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
