"""How nodes take invocations from the queue, and report on them.

Only their keys tell nodes apart: those that share a key could speak for each other, and all are trusted with
what they run. A report is bounded and normalized before it is stored.
"""

from dataclasses import fields
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
from toolgate.surfaces.grpc.rpc import RpcCall, node_rpc

MAX_CLAIMED: Final = 8
"""At a time: each may have an input of 1 MiB, and a node takes messages of 16."""
MAX_ID: Final = 128
MAX_REPORT_BYTES: Final = 16 * 1024 * 1024


@node_rpc("ClaimInvocations", waits=True)
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


@node_rpc("ReportInvocation", max_bytes=MAX_REPORT_BYTES)
async def report_invocation(
    control: Control, call: RpcCall[node_pb2.ReportInvocationRequest]
) -> node_pb2.ReportInvocationResponse:
    """Take what an attempt wrote and how it ended, and renew its lease; whether it may continue."""
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
    """A line as it is stored: no longer than a line may be."""
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
    """A result as it is stored. Raises InvalidRequest."""
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
        usage=_parse_usage(sent.usage),
        calls=tuple(map(_parse_call, sent.calls[:MAX_CALLS_KEPT])),
    )


def _parse_usage(sent: node_pb2.RunUsage) -> RunUsage:
    names = (one.name for one in fields(RunUsage))
    return RunUsage(**{name: min(getattr(sent, name), MAX_COUNT) for name in names})


def _parse_call(sent: node_pb2.CallMade) -> InvocationCall:
    return InvocationCall(
        server_id=sent.server_id[:MAX_TEXT],
        tool=sent.tool[:MAX_TEXT],
        code=sent.code[:MAX_TEXT],
        ms=min(sent.ms, MAX_COUNT),
    )


INVOCATION_RPCS: Final = (claim_invocations, report_invocation)
