"""How nodes ask about calls that a person must agree to.

A node is trusted to say who calls, and what: it is where callers prove themselves. What it sends for people
to read is bounded and must be what it should be.
"""

import re
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidRequest
from toolgate.govern.control import Control
from toolgate.model.approvals import MAX_ARGUMENT_BYTES, Question
from toolgate.model.names import is_tool_name
from toolgate.proto import node_pb2
from toolgate.registry.approvals.contract import Said, Verdict
from toolgate.surfaces.grpc.reports import MAX_COUNT, MAX_TEXT
from toolgate.surfaces.grpc.rpc import Call, Rpc

_SERVICE: Final = "toolgate.v1.NodeService"
_HEX: Final = re.compile(r"[0-9a-f]{16,64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def ask_approval(
    control: Control, call: Call[node_pb2.AskApprovalRequest]
) -> node_pb2.AskApprovalResponse:
    """Use the approval there is for a call, or ask for one."""
    question = parse_question(call.request)
    verdict = await control.store.approvals.ask(question, new_id=call.request.new_id)
    return _encode_verdict(control, verdict)


async def decide_approval(
    control: Control, call: Call[node_pb2.DecideApprovalRequest]
) -> node_pb2.AskApprovalResponse:
    """Take what the person says who is at the client that calls, and use the approval if it agrees."""
    sent = call.request
    said = Said(sent.approval_id, sent.is_approved)
    if not _HEX.fullmatch(said.approval_id):
        raise InvalidRequest("`approval_id` is not 16 to 64 hexadecimal digits")
    question = parse_question(sent.question)
    verdict = await control.store.approvals.settle(question, said, new_id=sent.question.new_id)
    return _encode_verdict(control, verdict)


def _encode_verdict(control: Control, verdict: Verdict) -> node_pb2.AskApprovalResponse:
    return node_pb2.AskApprovalResponse(
        outcome=verdict.outcome,
        approval_id=verdict.approval_id,
        expires_ms=verdict.expires_ms,
        reason=verdict.reason,
        in_place=verdict.in_place,
        console_url=control.gateway.sending.approving.console_url,
    )


def parse_question(sent: node_pb2.AskApprovalRequest) -> Question:
    """Raises InvalidRequest. What an approval is bound to is taken whole, or not at all."""
    if not _HEX.fullmatch(sent.new_id):
        raise InvalidRequest("`new_id` is not 16 to 64 hexadecimal digits")
    bound = (sent.principal, sent.task_id, sent.server_id)
    if not sent.principal or not all(len(one) <= MAX_TEXT and one.isprintable() for one in bound):
        raise InvalidRequest("the question does not say who calls what")
    if not is_tool_name(sent.tool):
        raise InvalidRequest("`tool` is not a tool's name")
    if not (_SHA256.fullmatch(sent.arguments_digest) and _SHA256.fullmatch(sent.definition)):
        raise InvalidRequest("`arguments_digest` and `definition` must be SHA-256")
    return Question(
        principal=sent.principal,
        task_id=sent.task_id,
        server_id=sent.server_id,
        tool=sent.tool,
        arguments_digest=sent.arguments_digest,
        definition=sent.definition,
        arguments=_parse_shown(sent.arguments),
        why=sent.why[:MAX_TEXT],
        session=sent.session[:MAX_TEXT],
        door=sent.door[:MAX_TEXT],
        round=min(sent.round, MAX_COUNT),
    )


def _parse_shown(raw: bytes) -> bytes:
    try:
        if len(raw) <= MAX_ARGUMENT_BYTES and _decode_object(raw) is not None:
            return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise InvalidRequest(f"`arguments` is not one JSON object of at most {MAX_ARGUMENT_BYTES} bytes")


def approval_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    return (
        Rpc(service=_SERVICE, method="AskApproval", roles=("node",), handler=ask_approval),
        Rpc(service=_SERVICE, method="DecideApproval", roles=("node",), handler=decide_approval),
    )
