"""Servers: their records, with how they fare here and on each node."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from toolgate.govern.changes.records import show_record
from toolgate.govern.control import Control
from toolgate.model.reports import NodeReport, ServerReport
from toolgate.model.revisions import StoredRecord
from toolgate.redaction.text import redact_text
from toolgate.surfaces.rest.framework.request import Parameter
from toolgate.surfaces.rest.framework.routing import RestEndpoint
from toolgate.surfaces.rest.resources.collection import RecordCollection, collection_endpoints
from toolgate.surfaces.rest.resources.record_shapes import (
    ServerList,
    ServerOnNode,
    ServerSent,
    ServerShown,
    ServerWritten,
)
from toolgate.upstream.oauth.grants import LoginKey
from toolgate.upstream.pool.health import STDERR_TAIL_BYTES, ServerHealth

LISTED_STDERR_CHARS: Final = 1_024
"""Of each server's last words, where many servers are listed."""


def show_servers(
    control: Control, reports: Sequence[NodeReport], records: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
    """Records with how each server fares here, null where that is not known (yet), and on each node."""
    on_nodes = _group_reports(control, reports)
    known = control.gateway.servers.health()
    tail_chars = STDERR_TAIL_BYTES if len(records) == 1 else LISTED_STDERR_CHARS
    return [
        {
            **show_record(stored),
            "updated_at_ms": stored.updated_at_ms,
            "health": show_health(known[stored.id], tail_chars) if stored.id in known else None,
            "nodes": on_nodes[stored.id],
            "login": control.logins.of(LoginKey(stored.id)),
        }
        for stored in records
    ]


def _group_reports(control: Control, reports: Sequence[NodeReport]) -> Mapping[str, list[ServerOnNode]]:
    """What the nodes that are there say of each server."""
    found: dict[str, list[ServerOnNode]] = defaultdict(list)
    for report in reports:
        if not report.is_lost(control.clock_ms()):
            for server in report.servers:
                found[server.server_id].append(_show_on_node(report.node_id, server))
    return found


def _show_on_node(node_id: str, server: ServerReport) -> ServerOnNode:
    return ServerOnNode(
        node_id=node_id,
        state=server.state,
        last_error=redact_text(server.last_error),
        hint=redact_text(server.hint),
        tools=server.tools,
        restarts=server.restarts,
        since_ms=server.since_ms,
        verified_ms=server.verified_ms,
    )


def show_health(health: ServerHealth, tail_chars: int = STDERR_TAIL_BYTES) -> ServerHealth:
    """Without what looks like a secret in the words of a server."""
    return replace(
        health,
        last_error=redact_text(health.last_error),
        hint=redact_text(health.hint),
        stderr_tail=redact_text(health.stderr_tail[-tail_chars:]),
    )


def _has_tag(query: Mapping[str, str], stored: StoredRecord) -> bool:
    return "tag" not in query or query["tag"] in stored.body.get("tags", ())


SERVERS: Final = RecordCollection(
    kind="server",
    path="/admin/api/mcp/servers",
    sent=ServerSent,
    shown=ServerShown,
    listed=ServerList,
    written=ServerWritten,
    show=show_servers,
    query=(Parameter("tag", "Only servers with this tag."),),
    matches_query=_has_tag,
)

ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = collection_endpoints(SERVERS)
