"""RPCs by which nodes coordinate: ended sessions, quota leases, approvals of calls, audit logs.

Callers authenticate at nodes, so the control plane trusts a node to report callers, calls and their results,
but only under the node ids that its key allows. Messages of nodes are bounded and checked.
"""

import asyncio
import logging
import re
from itertools import takewhile
from typing import Any, Final, cast, get_args

import msgspec
from google.protobuf.message import Message

from toolgate.audit.events import MAX_NUMBER
from toolgate.audit.log.files import MAX_LINE_BYTES, parse_lines
from toolgate.errors import InvalidRecord, InvalidRequest
from toolgate.govern.control import Control
from toolgate.model import principals
from toolgate.model.approvals import MAX_ARGUMENT_BYTES, ApprovalRequest
from toolgate.model.names import is_tool_name, parse_task_id
from toolgate.model.reports import MAX_ENDED, EndedSession
from toolgate.proto import node_pb2
from toolgate.registry.approvals import ApprovalVerdict, ElicitedDecision
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, node_rpc
from toolgate.surfaces.grpc.reports import MAX_COUNT, MAX_TEXT, parse_node_id

MAX_ENDED_AT_ONCE: Final = 1_000  # a node sends no more; see `MAX_SENT_AT_ONCE` of `app`
REREAD_MS: Final = 1_000
"""The interval of database queries, independent of the number of nodes."""
OVERLAP_MS: Final = 60_000
"""Transactions do not commit in the order of their times: sessions that may be stored late are sent again."""
MAX_LIFETIME_MS: Final = 7 * 24 * 3600 * 1000  # session ids live a day; another release may use longer
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")


class EndedSessionSync:
    """Passes ended sessions between nodes. It caches the sessions it has read: few of thousands are new."""

    def __init__(self) -> None:
        self._known: dict[str, EndedSession] = {}
        """Sessions by nonce, roughly in the order of their times."""
        self._newest_ms = 0
        self._read_ms = -REREAD_MS

    async def sync(self, call: RpcCall[node_pb2.SyncSessionsRequest]) -> Message:
        """Store the sessions that ended at a node, and return all that ended since `after_ms`."""
        sent, control, now_ms = call.request, call.control, call.control.clock_ms()
        if len(sent.ended) > MAX_ENDED_AT_ONCE:
            raise InvalidRequest(f"the request has more than {MAX_ENDED_AT_ONCE} sessions")
        if sent.ended:
            if not all(_NONCE.fullmatch(one.nonce) for one in sent.ended):
                raise InvalidRequest("invalid session `nonce`")
            latest_ms = now_ms + MAX_LIFETIME_MS
            news = [EndedSession(one.nonce, min(one.until_ms, latest_ms)) for one in sent.ended]
            await control.store.ended_sessions.add(news)
        # The sending node knows them already, and the others get them a moment later.
        if not 0 <= now_ms - self._read_ms < REREAD_MS:
            self._read_ms = now_ms
            await self._read(control, now_ms)
        since_ms = sent.after_ms - OVERLAP_MS
        late = takewhile(lambda one: one.at_ms >= since_ms - OVERLAP_MS, reversed(self._known.values()))
        ended = [node_pb2.EndedSession(**one._asdict()) for one in late if one.at_ms >= since_ms]
        return node_pb2.SyncSessionsResponse(ended=reversed(ended))

    async def _read(self, control: Control, now_ms: int) -> None:
        after_ms = max(0, self._newest_ms - OVERLAP_MS)
        news = await control.store.ended_sessions.list(after_ms=after_ms)
        if all(one.nonce in self._known for one in news):
            return
        known = self._known | {one.nonce: one for one in news}
        left = [one for one in known.values() if one.until_ms > now_ms][-MAX_ENDED:]
        self._known = {one.nonce: one for one in left}
        self._newest_ms = max((one.at_ms for one in left), default=0)


@node_rpc("Spend")
async def lease_quota(call: RpcCall[node_pb2.SpendRequest]) -> node_pb2.SpendResponse:
    """Grant leases of calls, and count used tokens."""
    if len(call.request.draws) > principals.MAX_LEASE_REQUESTS:
        raise InvalidRequest(f"the request has more than {principals.MAX_LEASE_REQUESTS} lease requests")
    requests = [parse_lease_request(one) for one in call.request.draws]
    drawn = await call.control.store.spending.draw(requests)
    return node_pb2.SpendResponse(drawn=[node_pb2.Drawn(**one._asdict()) for one in drawn])


def parse_lease_request(sent: node_pb2.Draw) -> principals.LeaseRequest:
    """Parse a lease request. Raises InvalidRequest."""
    if sent.kind not in get_args(principals.HolderKind) or sent.budget not in get_args(principals.QuotaName):
        raise InvalidRequest("a lease request has no valid `budget`, `kind` or `id`")
    if not 1 <= sent.limit <= principals.MAX_TOKENS or max(sent.spent, sent.returned) > principals.MAX_TOKENS:
        raise InvalidRequest(f"the numbers of a lease request must be in 1 to {principals.MAX_TOKENS}")
    try:
        holder = principals.QuotaHolder(cast("principals.HolderKind", sent.kind), parse_task_id(sent.id))
    except InvalidRecord as exc:
        raise InvalidRequest(str(exc)) from exc
    return principals.LeaseRequest(
        holder=holder,
        budget=cast("principals.QuotaName", sent.budget),
        limit=sent.limit,
        spent=sent.spent,
        returned=sent.returned,
        window_ms=min(sent.window_ms, MAX_COUNT),
    )


_HEX: Final = re.compile(r"[0-9a-f]{16,64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


@node_rpc("AskApproval")
async def request_approval(call: RpcCall[node_pb2.AskApprovalRequest]) -> node_pb2.AskApprovalResponse:
    """Use the approval that a call has, or request one."""
    question = parse_question(call.request)
    verdict = await call.control.store.approvals.request(question, new_id=call.request.new_id)
    return _encode_verdict(call.control, verdict)


@node_rpc("DecideApproval")
async def decide_approval(call: RpcCall[node_pb2.DecideApprovalRequest]) -> node_pb2.AskApprovalResponse:
    """Record the decision of the client's user, and use the approval if it was granted."""
    sent = call.request
    decision = ElicitedDecision(sent.approval_id, sent.is_approved)
    if not _HEX.fullmatch(decision.approval_id):
        raise InvalidRequest("`approval_id` is not 16 to 64 hexadecimal digits")
    question = parse_question(sent.question)
    approvals = call.control.store.approvals
    verdict = await approvals.settle(question, decision, new_id=sent.question.new_id)
    return _encode_verdict(call.control, verdict)


def _encode_verdict(control: Control, verdict: ApprovalVerdict) -> node_pb2.AskApprovalResponse:
    shown = verdict._replace(console_url=control.gateway.console_url)
    return node_pb2.AskApprovalResponse(**shown._asdict())


def parse_question(sent: node_pb2.AskApprovalRequest) -> ApprovalRequest:
    """Parse an approval request. Raises InvalidRequest: nothing that binds an approval is ever cut."""
    if not _HEX.fullmatch(sent.new_id):
        raise InvalidRequest("`new_id` is not 16 to 64 hexadecimal digits")
    bound = (sent.principal, sent.task_id, sent.server_id)
    if not sent.principal or not all(len(one) <= MAX_TEXT and one.isprintable() for one in bound):
        raise InvalidRequest("the approval request has no valid `principal`, `server_id` or `tool`")
    if not is_tool_name(sent.tool):
        raise InvalidRequest("`tool` is not a valid tool name")
    if not (_SHA256.fullmatch(sent.arguments_digest) and _SHA256.fullmatch(sent.definition)):
        raise InvalidRequest("`arguments_digest` and `definition` must be SHA-256 in hexadecimal")
    return ApprovalRequest(
        principal=sent.principal,
        task_id=sent.task_id,
        server_id=sent.server_id,
        tool=sent.tool,
        arguments_digest=sent.arguments_digest,
        definition=sent.definition,
        arguments=_parse_arguments(sent.arguments),
        why=sent.why[:MAX_TEXT],
        session=sent.session[:MAX_TEXT],
        door=sent.door[:MAX_TEXT],
        round=min(sent.round, MAX_COUNT),
    )


def _parse_arguments(raw: bytes) -> bytes:
    try:
        if len(raw) <= MAX_ARGUMENT_BYTES and _decode_object(raw) is not None:
            return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise InvalidRequest(f"`arguments` is not one JSON object of at most {MAX_ARGUMENT_BYTES} bytes")


MAX_EVENTS: Final = 1_000
"""Events in one piece of a log."""
MAX_LOG_CHARS: Final = 64  # names of logs have 32; another release may use more

_log: Final = logging.getLogger(__name__)


@node_rpc("RecordEvents", max_bytes=MAX_EVENTS * MAX_LINE_BYTES)
async def record_events(call: RpcCall[node_pb2.RecordEventsRequest]) -> node_pb2.RecordEventsResponse:
    """Store a piece of the node's audit log. Returns the number up to which the log is stored."""
    sent = call.request
    node = parse_node_id(call.caller, sent.node_id)
    if not (sent.log.isalnum() and len(sent.log) <= MAX_LOG_CHARS):
        raise InvalidRequest("`log` is not a valid log name")
    if len(sent.events) > MAX_EVENTS:
        raise InvalidRequest(f"the piece of a log has more than {MAX_EVENTS} events")
    if sent.after > sent.upto or sent.upto > MAX_NUMBER:
        raise InvalidRequest("`upto` must be at least `after`, and both within the log")
    batch = await asyncio.to_thread(parse_lines, sent.events, after=sent.after, upto=sent.upto)
    if invalid := len(sent.events) - len(batch.lines):
        _log.warning("node `%s` sent %d invalid audit events", node, invalid)
    taken = await call.control.audit_index.add(batch, node=node, log=sent.log)
    return node_pb2.RecordEventsResponse(taken=taken)


def coordination_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    sync_sessions = node_rpc("SyncSessions")(EndedSessionSync().sync)
    return (request_approval, decide_approval, lease_quota, record_events, sync_sessions)
