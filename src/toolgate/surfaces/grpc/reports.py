"""Reports of nodes, and the invocations that they take from the queue.

A node is trusted to serve and with what it runs, not to be right: its texts are bounded and made printable,
its definitions are checked like those of a server, and servers that are not registered are ignored. What it
says is stored under no other name than its key allows; those that share a key could speak for each other.
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

MAX_REPORT_BYTES: Final = 16 * 1024 * 1024  # twice `MAX_DEFINITIONS_BYTES`, the most of one server
MAX_SERVERS: Final = 5_000  # as many as a registry has
MAX_DEFINITIONS_BYTES: Final = 8 * 1024 * 1024
"""Kept of one server. Its tools past that are named as left out."""
MAX_NODES: Final = 1_000
"""Nodes that report by one key at a time."""
REREAD_MS: Final = 60_000
"""Another replica may have taken in other definitions: what is kept is looked up again so often."""
READ_AT_ONCE: Final = 50
"""Servers whose definitions are read at once, so that other readers have their turn in between."""
MAX_TEXT: Final = 1_000  # characters, of an error or a name: a few lines for people
MAX_COUNT: Final = 2**53  # the end of the integers that every JSON reader has (RFC 8259, section 6)

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,126}[A-Za-z0-9])?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST: Final = re.compile(r"[0-9A-Za-z:._-]{0,128}")

_COUNTS: Final = ("since_ms", "restarts", "tools", "quarantined", "calls", "verified_ms")

T = TypeVar("T", bound=str)


class _StoredDigest(NamedTuple):
    """The definitions of a server that are in the store."""

    at_ms: int
    digest: str


class ReportReceiver:
    """Takes reports in. It remembers which nodes report, and which definitions are kept: it need not ask."""

    def __init__(self, *, max_nodes: int = MAX_NODES) -> None:
        self._max_nodes = max_nodes
        self._last_seen_ms: dict[str, dict[str, int]] = {}
        self._kept: dict[str, _StoredDigest] = {}
        self._read_ms = 0
        """When those were read."""

    async def receive(self, call: RpcCall[node_pb2.ReportRequest]) -> node_pb2.ReportResponse:
        """Replace what the node said before; the answer names the servers whose definitions are wanted."""
        sent, control, now_ms = call.request, call.control, call.control.clock_ms()
        if len(sent.servers) > MAX_SERVERS or len(sent.definitions) > MAX_SERVERS:
            raise InvalidRequest(f"the report speaks of more than {MAX_SERVERS} servers")
        node_id = parse_node_id(call.caller, sent.node_id)
        self._count(call.caller.id, node_id, now_ms)
        servers = control.gateway.snapshot.servers
        # Definitions first: who reads the report finds them.
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
                    f"`{principal_id}` reports for {self._max_nodes} nodes, as many as it may",
                    hint="give the other nodes a key of their own",
                )
            self._last_seen_ms[principal_id] = seen_ms = live
        seen_ms[node_id] = now_ms

    async def _read(self, reports: Reports) -> None:
        """Take over what other replicas saved. Definitions are large: only those that differ are read."""
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
    """The id under which a node is known: its key's, with its own name behind it. Raises InvalidRequest.

    No key holds a `/` in its id, and of a token's subject it is escaped, so that no node can speak for that
    of another.
    """
    own = principal.id.removeprefix("key:").replace("%", "%25").replace("/", "%2F")
    name = name.removeprefix(f"{own}/")
    if name in {"", own}:
        return own
    if not _NODE_NAME.fullmatch(name):
        raise InvalidRequest(
            "`node_id` is not a name", hint="use up to 128 letters, digits, `.`, `-`, `_`, `:` and `/`"
        )
    return f"{own}/{name}"


def parse_report(
    sent: node_pb2.ReportRequest, *, node_id: str, servers: Collection[str], at_ms: int
) -> NodeReport:
    """The report as it is kept: only of `servers`, each once."""
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
        # A newer node may know more states than we do.
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
    """The definitions that hold, as they were written; the others by name, with what is wrong with them."""
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
                reason = "control keeps no more definitions of this server: they are too large"
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
    """What was sent, where it is one of those we know."""
    return next((one for one in known if one == sent), otherwise)


def _parse_digest(sent: str) -> str:
    return sent if _DIGEST.fullmatch(sent) else ""


def _clean_text(sent: str) -> str:
    return printable(redact_text(sent[:MAX_TEXT]))


MAX_CLAIMED: Final = 8
"""At a time: each may have an input of 1 MiB, and a node takes messages of 16."""
MAX_ID: Final = 128  # ids of invocations have 28 characters; another release may have more


@node_rpc("ClaimInvocations", waits=True)
async def claim_invocations(call: RpcCall[node_pb2.ClaimInvocationsRequest]) -> Message:
    """Give a node invocations to run, under a lease; where none is queued, wait for one."""
    asked = call.request
    claimed = await call.control.store.invocations.claim(
        parse_node_id(call.caller, asked.node_id),
        limit=min(asked.limit, MAX_CLAIMED),
        wait_s=min(asked.wait_ms / 1000, MAX_WAIT_S),
    )
    return node_pb2.ClaimInvocationsResponse(invocations=map(encode_claimed, claimed))


@node_rpc("ReportInvocation", max_bytes=MAX_REPORT_BYTES)
async def report_invocation(call: RpcCall[node_pb2.ReportInvocationRequest]) -> Message:
    """Take what an attempt wrote and how it ended, and renew its lease; whether it may continue."""
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


def parse_line(sent: node_pb2.LogLine) -> invocations.LogLine:
    """A line as it is stored: no longer than a line may be."""
    raw = sent.text.encode()
    # A character that is cut in two is dropped.
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
    """A result as it is stored. Raises InvalidRequest."""
    state = parse_known(get_args(invocations.InvocationState), sent.state, otherwise="queued")
    if state not in invocations.ENDED:
        raise InvalidRequest("`ending.state` is not one that an invocation ends in")
    usage = {one.name: min(getattr(sent.usage, one.name), MAX_COUNT) for one in fields(invocations.RunUsage)}
    return invocations.InvocationResult(
        state=state,
        # A newer node may know more ways to end than we do.
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
