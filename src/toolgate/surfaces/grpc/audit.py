"""How nodes hand over their audit logs: in pieces, in order, each event once.

A node is trusted to say what happened to it, under no other name than its key allows. What it says is
bounded, and lines that are no events are passed over.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from toolgate.audit.events import MAX_NUMBER
from toolgate.audit.lines import MAX_LINE_BYTES, Batch, Line, parse_line
from toolgate.errors import InvalidRequest
from toolgate.govern.audit import index_of
from toolgate.govern.control import Control
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.reports import parse_node_id
from toolgate.surfaces.grpc.rpc import Call, Rpc

MAX_EVENTS: Final = 1_000
"""In one piece."""
MAX_LOG_CHARS: Final = 64

_log: Final = logging.getLogger(__name__)


async def record_events(
    control: Control, call: Call[node_pb2.RecordEventsRequest]
) -> node_pb2.RecordEventsResponse:
    """Take in a piece of the node's audit log; up to where that is taken by now."""
    sent = call.request
    node = parse_node_id(call.caller, sent.node_id)
    if not (sent.log.isalnum() and len(sent.log) <= MAX_LOG_CHARS):
        raise InvalidRequest("`log` is not the name of a log")
    if len(sent.events) > MAX_EVENTS:
        raise InvalidRequest(f"a piece of a log has at most {MAX_EVENTS} events")
    if sent.after > sent.upto or sent.upto > MAX_NUMBER:
        raise InvalidRequest("`after` and `upto` are no piece of a log")
    lines = await asyncio.to_thread(parse_events, sent.events, after=sent.after, upto=sent.upto)
    if len(lines) < len(sent.events):
        _log.warning("node `%s` sent %d audit events that are none", node, len(sent.events) - len(lines))
    batch = Batch(sent.after, sent.upto, lines)
    return node_pb2.RecordEventsResponse(taken=await index_of(control).add(batch, node=node, log=sent.log))


def parse_events(sent: Sequence[bytes], *, after: int, upto: int) -> Sequence[Line]:
    """Those that are events of the piece, in order."""
    lines = []
    for raw in sent:
        line = parse_line(raw)
        if line is not None and after < line.seq <= upto:
            lines.append(line)
            after = line.seq
    return lines


def audit_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    return (
        Rpc(
            service="toolgate.v1.NodeService",
            method="RecordEvents",
            roles=("node",),
            handler=record_events,
            max_bytes=MAX_EVENTS * MAX_LINE_BYTES,
        ),
    )
