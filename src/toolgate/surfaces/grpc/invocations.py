"""How nodes take invocations from the queue, and what they report of them.

Nodes are told apart by their keys alone: those that share a key could speak for each other, and all of them
are trusted with what they run. What one reports is bounded and made whole before it is kept.
"""

from typing import Final, get_args

import msgspec

from toolgate.errors import InvalidRequest
from toolgate.govern.control import Control
from toolgate.model.invocations import (
    ENDED,
    MAX_CALLS_KEPT,
    MAX_LINE_BYTES,
    MAX_LOG_LINES,
    EndedBy,
    Invocation,
    InvocationCall,
    InvocationResult,
    InvocationState,
    LogLevel,
    LogLine,
    LogStream,
    RunUsage,
)
from toolgate.model.tasks import MAX_OUTPUT_BYTES
from toolgate.proto import node_pb2
from toolgate.registry.replication.remote import MAX_WAIT_S
from toolgate.surfaces.grpc.reports import MAX_COUNT, MAX_TEXT, parse_known, parse_node_id
from toolgate.surfaces.grpc.rpc import Rpc, RpcCall

MAX_CLAIMED: Final = 8
"""At a time: each may have an input of 1 MiB, and a node takes messages of 16."""
MAX_ID: Final = 128
MAX_REPORT_BYTES: Final = 16 * 1024 * 1024


async def claim_invocations(
    control: Control, call: RpcCall[node_pb2.ClaimInvocationsRequest]
) -> node_pb2.ClaimInvocationsResponse:
    """Give a node invocations to run, under a lease; where none is queued, wait for one."""
    asked = call.request
    claimed = await control.store.invocations.claim(
        parse_node_id(call.caller, asked.node_id),
        limit=min(asked.limit, MAX_CLAIMED),
        wait_s=min(asked.wait_ms / 1000, MAX_WAIT_S),
    )
    return node_pb2.ClaimInvocationsResponse(invocations=map(encode_claimed, claimed))


async def report_invocation(
    control: Control, call: RpcCall[node_pb2.ReportInvocationRequest]
) -> node_pb2.ReportInvocationResponse:
    """Hear what an attempt wrote and how it ended, and renew its lease; whether it may go on."""
    sent = call.request
    if len(sent.lines) > MAX_LOG_LINES:
        raise InvalidRequest(f"the report has more than {MAX_LOG_LINES} lines")
    if len(sent.invocation_id) > MAX_ID:
        return node_pb2.ReportInvocationResponse(verdict="lost")
    verdict = await control.store.invocations.report(
        sent.invocation_id,
        sent.attempt,
        lines=[parse_line(line) for line in sent.lines],
        ending=parse_ending(sent.ending) if sent.HasField("ending") else None,
    )
    return node_pb2.ReportInvocationResponse(verdict=verdict)


def encode_claimed(invocation: Invocation) -> node_pb2.ClaimedInvocation:
    """All that its node needs."""
    return node_pb2.ClaimedInvocation(
        invocation_id=invocation.invocation_id,
        attempt=invocation.attempt,
        task_id=invocation.task_id,
        principal=msgspec.json.encode(invocation.principal),
        revision=invocation.revision,
        input=invocation.input,
        created_ms=invocation.created_ms,
        retries=invocation.retries,
        lease_until_ms=invocation.lease_until_ms,
    )


def parse_line(sent: node_pb2.LogLine) -> LogLine:
    """A line as it is kept: no longer than a line may be."""
    raw = sent.text.encode()
    # A character that is cut in two is dropped.
    text = sent.text if len(raw) <= MAX_LINE_BYTES else raw[:MAX_LINE_BYTES].decode(errors="ignore")
    return LogLine(
        seq=min(sent.seq, MAX_COUNT),
        at_ms=min(sent.at_ms, MAX_COUNT),
        stream=parse_known(get_args(LogStream), sent.stream, otherwise="log"),
        level=parse_known(get_args(LogLevel), sent.level, otherwise="info"),
        text=text,
    )


def parse_ending(sent: node_pb2.Ending) -> InvocationResult:
    """An ending as it is kept. Raises InvalidRequest where it is none."""
    state = parse_known(get_args(InvocationState), sent.state, otherwise="queued")
    if state not in ENDED:
        raise InvalidRequest("`ending.state` is not one that an invocation ends in")
    return InvocationResult(
        state=state,
        # A newer node may know more ways to end than we do.
        ended_by=parse_known(get_args(EndedBy), sent.ended_by, otherwise="internal"),
        exit_code=sent.exit_code if sent.HasField("exit_code") else None,
        message=sent.message[:MAX_TEXT],
        stdout=sent.stdout[:MAX_OUTPUT_BYTES],
        stderr=sent.stderr[:MAX_OUTPUT_BYTES],
        is_truncated=sent.is_truncated or max(len(sent.stdout), len(sent.stderr)) > MAX_OUTPUT_BYTES,
        usage=RunUsage(
            fuel=min(sent.usage.fuel, MAX_COUNT),
            wall_ms=min(sent.usage.wall_ms, MAX_COUNT),
            memory_bytes=min(sent.usage.memory_bytes, MAX_COUNT),
            hostcalls=min(sent.usage.hostcalls, MAX_COUNT),
            tool_calls=min(sent.usage.tool_calls, MAX_COUNT),
            model_asks=min(sent.usage.model_asks, MAX_COUNT),
        ),
        calls=tuple(map(_parse_call, sent.calls[:MAX_CALLS_KEPT])),
    )


def _parse_call(sent: node_pb2.CallMade) -> InvocationCall:
    return InvocationCall(
        server_id=sent.server_id[:MAX_TEXT],
        tool=sent.tool[:MAX_TEXT],
        code=sent.code[:MAX_TEXT],
        ms=min(sent.ms, MAX_COUNT),
    )


def invocation_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    service = "toolgate.v1.NodeService"
    return (
        Rpc(
            service=service,
            method="ClaimInvocations",
            roles=("node",),
            handler=claim_invocations,
            waits=True,
        ),
        Rpc(
            service=service,
            method="ReportInvocation",
            roles=("node",),
            handler=report_invocation,
            max_bytes=MAX_REPORT_BYTES,
        ),
    )
