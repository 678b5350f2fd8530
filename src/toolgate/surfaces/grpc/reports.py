"""RPCs for nodes' reports and for the invocations that nodes take from the queue.

Nodes are trusted to serve and run, but their reports are checked: texts are bounded and made printable,
definitions are checked as on a node, and unregistered servers are ignored. A report is stored only under a
node id that its key allows; nodes that share a key could report for each other.
"""

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar, get_args

import msgspec
from google.protobuf.message import Message

from toolgate.audit.events import DefinitionChanged
from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.catalog.listings import check_lists
from toolgate.errors import InvalidRequest, SessionLimit
from toolgate.govern.pins import record_quarantined
from toolgate.model import invocations
from toolgate.model.names import PROMPT, RESOURCE, is_tool_name
from toolgate.model.principals import Principal
from toolgate.model.reports import LOST_AFTER_MS, Definitions, HealthState, NodeReport, ServerReport
from toolgate.model.tasks import MAX_OUTPUT_BYTES
from toolgate.model.tools import Listing, ListState, ToolDefinition
from toolgate.proto import node_pb2
from toolgate.redaction.shapes import redact_text
from toolgate.registry.records.body import printable
from toolgate.registry.replication.remote import MAX_WAIT_S
from toolgate.registry.store.side_tables import Reports
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, node_rpc

MAX_REPORT_BYTES: Final = 16 * 1024 * 1024  # twice `MAX_DEFINITIONS_BYTES`, the limit of one server
MAX_SERVERS: Final = 5_000  # as many as a registry has
MAX_DEFINITIONS_BYTES: Final = 8 * 1024 * 1024
"""Definitions of one server to store. Its further tools are reported as quarantined."""
MAX_NODES: Final = 1_000
"""Nodes that report with one key at a time."""
REREAD_MS: Final = 60_000
"""How often the stored definitions are read again, because another replica may have stored new ones."""
READ_AT_ONCE: Final = 50
"""Servers whose definitions are read at once, so that other readers run in between."""
MAX_TEXT: Final = 1_000  # characters of an error or a name: a few lines for people
MAX_COUNT: Final = 2**53  # the largest integer that every JSON reader supports (RFC 8259, section 6)

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,126}[A-Za-z0-9])?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"[0-9A-Za-z:._-]{0,128}")

_COUNTS: Final = ("since_ms", "restarts", "tools", "quarantined", "calls", "verified_ms")

T = TypeVar("T", bound=str)


class _StoredDigest(NamedTuple):
    """The digest of a server's stored definitions."""

    at_ms: int
    digest: str


class ReportReceiver:
    """Stores reports. It caches which nodes report and which definitions are stored."""

    def __init__(self, *, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._last_seen_ms: dict[str, dict[str, int]] = {}
        self._kept: dict[str, _StoredDigest] = {}
        self._read_ms = 0
        """When the digests were read."""

    async def receive(self, call: RpcCall[node_pb2.ReportRequest]) -> node_pb2.ReportResponse:
        """Replace the node's last report. The response names the servers whose definitions to send."""
        sent, control, now_ms = call.request, call.control, call.control.clock_ms()
        if len(sent.servers) > MAX_SERVERS or len(sent.definitions) > MAX_SERVERS:
            raise InvalidRequest(f"the report has more than {MAX_SERVERS} servers")
        node_id = parse_node_id(call.caller, sent.node_id)
        self._count(call.caller.id, node_id, now_ms)
        servers = control.gateway.snapshot.servers
        # Definitions first, so that readers of the report find them.
        if known := [one for one in sent.definitions if one.server_id in servers]:
            kept = await asyncio.to_thread(lambda: [parse_definitions(one, now_ms) for one in known])
            await control.store.reports.save_definitions(*kept)
            self._kept |= {one.server_id: _StoredDigest(one.at_ms, one.digest) for one in kept}
        report = parse_report(sent, node_id=node_id, servers=servers, at_ms=now_ms)
        await control.store.reports.save_report(report)
        if report.epoch == control.store.epoch:
            changed = {one.server_id: one.changed for one in report.servers if one.changed}
            for one in await record_quarantined(control.store, changed, seen=report.revision):
                control.gateway.audit.record(DefinitionChanged(now_ms, *one))
        is_fresh = 0 <= report.at_ms - self._read_ms < REREAD_MS
        if self._list_missing(report) or not is_fresh:
            self._read_ms = report.at_ms
            await self._read(control.store.reports)
        return node_pb2.ReportResponse(wanted=self._list_missing(report))

    def _count(self, principal_id: str, node_id: str, now_ms: int) -> None:
        seen_ms = self._last_seen_ms.setdefault(principal_id, {})
        if node_id not in seen_ms and len(seen_ms) >= self._max_nodes:
            live = {name: at_ms for name, at_ms in seen_ms.items() if now_ms - at_ms <= LOST_AFTER_MS}
            if len(live) >= self._max_nodes:
                raise SessionLimit(
                    f"`{principal_id}` has reached its limit of {self._max_nodes} reporting nodes",
                    hint="create another key of role `node` for further nodes",
                )
            self._last_seen_ms[principal_id] = seen_ms = live
        seen_ms[node_id] = now_ms

    async def _read(self, reports: Reports) -> None:
        """Read the digests that other replicas stored. Only changed definitions are read, as they are
        large."""
        times = await reports.definition_times()
        known = self._kept
        self._kept = {
            one: known[one] for one, at_ms in times.items() if one in known and known[one].at_ms == at_ms
        }
        others = sorted(times.keys() - self._kept.keys())
        for first in range(0, len(others), READ_AT_ONCE):
            kept = await reports.list_definitions(others[first : first + READ_AT_ONCE])
            self._kept |= {one.server_id: _StoredDigest(one.at_ms, one.digest) for one in kept}

    def _list_missing(self, report: NodeReport) -> list[str]:
        kept = {server_id: one.digest for server_id, one in self._kept.items()}
        servers = [one for one in report.servers if one.definitions]
        return [one.server_id for one in servers if kept.get(one.server_id) != one.definitions]


def parse_node_id(principal: Principal, name: str) -> str:
    """The id of a node: its key's id, followed by its own name. Raises InvalidRequest.

    Ids of keys have no `/`, and in a token's subject it is escaped. So no node can report for a node with
    another key.
    """
    own = principal.id.removeprefix("key:").replace("%", "%25").replace("/", "%2F")
    name = name.removeprefix(f"{own}/")
    if name in {"", own}:
        return own
    if not _NODE_NAME.fullmatch(name):
        raise InvalidRequest(
            "`node_id` is not a valid name", hint="use up to 128 letters, digits, `.`, `-`, `_`, `:` and `/`"
        )
    return f"{own}/{name}"


def parse_report(
    sent: node_pb2.ReportRequest, *, node_id: str, servers: Collection[str], at_ms: int
) -> NodeReport:
    """The report to store: only registered `servers`, each once."""
    known = {one.server_id: _parse_server(one) for one in sent.servers if one.server_id in servers}
    return NodeReport(
        node_id=node_id,
        url=_clean_text(sent.url),
        version=_clean_text(sent.version),
        epoch=_clean_text(sent.epoch),
        revision=min(sent.revision, MAX_COUNT),
        is_degraded=sent.is_degraded,
        at_ms=at_ms,
        servers=tuple(known[server_id] for server_id in sorted(known)),
    )


def _parse_server(sent: node_pb2.ServerReport) -> ServerReport:
    counts = {name: min(getattr(sent, name), MAX_COUNT) for name in _COUNTS}
    return ServerReport(
        server_id=sent.server_id,
        # A newer node may have further states.
        state=parse_known(get_args(HealthState), sent.state, otherwise="degraded"),
        list_state=parse_known(get_args(ListState), sent.list_state, otherwise="pending"),
        last_error=_clean_text(sent.last_error),
        hint=_clean_text(sent.hint),
        is_stale=sent.is_stale,
        definitions=_parse_digest(sent.definitions),
        changed={
            name: found
            for name, found in sorted(sent.changed.items())[:MAX_DEFINITIONS]
            if is_tool_name(name) and _SHA256.fullmatch(found)
        },
        **counts,
    )


def parse_definitions(sent: node_pb2.Definitions, at_ms: int) -> Definitions:
    """The valid definitions as written, and the invalid ones by name with their problem."""
    lists = check_lists(
        sent.server_id,
        tools=sent.tools,
        prompts=sent.prompts,
        resources=sent.resources,
        templates=sent.templates,
    )
    left, left_out = MAX_DEFINITIONS_BYTES, {}

    def keep(
        found: Mapping[str, ToolDefinition] | Mapping[str, Listing], kind: str = ""
    ) -> tuple[bytes, ...]:
        nonlocal left
        kept = []
        for name, definition in found.items():
            left -= len(definition.raw)
            if left >= 0:
                kept.append(definition.raw)
            else:
                reason = "the definitions of this server are too large for the control plane"
                left_out[kind + name] = reason
        return tuple(kept)

    reasons = list(sent.quarantined.items())[:MAX_SERVERS]
    quarantined = {_clean_text(name): _clean_text(reason) for name, reason in reasons}
    return Definitions(
        server_id=sent.server_id,
        digest=_parse_digest(sent.digest),
        tools=keep(lists.tools),
        prompts=keep(lists.prompts, PROMPT),
        resources=keep(lists.resources, RESOURCE),
        templates=keep(lists.templates, RESOURCE),
        quarantined=MappingProxyType({**quarantined, **lists.quarantined, **left_out}),
        at_ms=at_ms,
    )


def parse_known(known: tuple[T, ...], sent: str, *, otherwise: T) -> T:
    """`sent` if it is a known value, else `otherwise`."""
    return next((one for one in known if one == sent), otherwise)


def _parse_digest(sent: str) -> str:
    return sent if _DIGEST.fullmatch(sent) else ""


def _clean_text(sent: str) -> str:
    return printable(redact_text(sent[:MAX_TEXT]))


MAX_CLAIMED: Final = 8
"""Invocations in one response: each may have an input of 1 MiB, and a node accepts messages of 16 MiB."""
MAX_ID: Final = 128  # ids of invocations have 28 characters; another release may use more


@node_rpc("ClaimInvocations", waits=True)
async def claim_invocations(call: RpcCall[node_pb2.ClaimInvocationsRequest]) -> Message:
    """Give a node invocations to run, under a lease. If none is queued, wait for one."""
    asked = call.request
    claimed = await call.control.store.invocations.claim(
        parse_node_id(call.caller, asked.node_id),
        limit=min(asked.limit, MAX_CLAIMED),
        wait_s=min(asked.wait_ms / 1000, MAX_WAIT_S),
    )
    return node_pb2.ClaimInvocationsResponse(invocations=map(encode_claimed, claimed))


@node_rpc("ReportInvocation", max_bytes=MAX_REPORT_BYTES)
async def report_invocation(call: RpcCall[node_pb2.ReportInvocationRequest]) -> Message:
    """Store an attempt's output and result, and renew its lease. Returns whether it may continue."""
    sent = call.request
    if len(sent.lines) > invocations.MAX_LOG_LINES:
        raise InvalidRequest(f"the report has more than {invocations.MAX_LOG_LINES} lines")
    if len(sent.invocation_id) > MAX_ID:
        return node_pb2.ReportInvocationResponse(verdict="lost")
    verdict = await call.control.store.invocations.report(
        sent.invocation_id,
        sent.attempt,
        lines=[parse_line(line) for line in sent.lines],
        ending=parse_ending(sent.ending) if sent.HasField("ending") else None,
    )
    return node_pb2.ReportInvocationResponse(verdict=verdict)


def encode_claimed(invocation: invocations.Invocation) -> node_pb2.ClaimedInvocation:
    """An invocation with everything that its node needs."""
    sent = {name: getattr(invocation, name) for name in node_pb2.ClaimedInvocation.DESCRIPTOR.fields_by_name}
    sent["principal"] = msgspec.json.encode(invocation.principal)
    return node_pb2.ClaimedInvocation(**sent)


def parse_line(sent: node_pb2.LogLine) -> invocations.LogLine:
    """A line to store, cut to the limit of a line."""
    raw = sent.text.encode()
    # A character that the cut splits is dropped.
    most = invocations.MAX_LINE_BYTES
    text = sent.text if len(raw) <= most else raw[:most].decode(errors="ignore")
    return invocations.LogLine(
        seq=min(sent.seq, MAX_COUNT),
        at_ms=min(sent.at_ms, MAX_COUNT),
        stream=parse_known(get_args(invocations.LogStream), sent.stream, otherwise="log"),
        level=parse_known(get_args(invocations.LogLevel), sent.level, otherwise="info"),
        text=text,
    )


def parse_ending(sent: node_pb2.Ending) -> invocations.InvocationResult:
    """A result to store. Raises InvalidRequest."""
    state = parse_known(get_args(invocations.InvocationState), sent.state, otherwise="queued")
    if state not in invocations.ENDED:
        raise InvalidRequest("`ending.state` is not a final state of an invocation")
    usage = {one.name: min(getattr(sent.usage, one.name), MAX_COUNT) for one in fields(invocations.RunUsage)}
    return invocations.InvocationResult(
        state=state,
        # A newer node may have further causes.
        ended_by=parse_known(get_args(invocations.EndedBy), sent.ended_by, otherwise="internal"),
        exit_code=sent.exit_code if sent.HasField("exit_code") else None,
        message=sent.message[:MAX_TEXT],
        stdout=sent.stdout[:MAX_OUTPUT_BYTES],
        stderr=sent.stderr[:MAX_OUTPUT_BYTES],
        is_truncated=sent.is_truncated or max(len(sent.stdout), len(sent.stderr)) > MAX_OUTPUT_BYTES,
        usage=invocations.RunUsage(**usage),
        calls=tuple(
            invocations.InvocationCall(
                server_id=one.server_id[:MAX_TEXT],
                tool=one.tool[:MAX_TEXT],
                code=one.code[:MAX_TEXT],
                ms=min(one.ms, MAX_COUNT),
            )
            for one in sent.calls[: invocations.MAX_CALLS_KEPT]
        ),
    )


def report_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    report = node_rpc("Report", max_bytes=MAX_REPORT_BYTES)(ReportReceiver().receive)
    return (report, claim_invocations, report_invocation)
