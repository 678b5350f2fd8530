"""Servers: their records with how they fare on this node, and trying or listing one on demand.

Only a record that is saved can be tried, so starting a program always takes a write first, with the
role and the audit record that go with it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from toolgate.errors import NotFound
from toolgate.govern.changes import note
from toolgate.govern.control import Control
from toolgate.govern.records import find_record, show_record
from toolgate.model.reports import NodeReport, ServerReport
from toolgate.model.revisions import Stored
from toolgate.registry.records import parse_server
from toolgate.registry.redaction import redact_text
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.collection import Collection, collection_endpoints
from toolgate.surfaces.rest.record_shapes import (
    RefreshAnswer,
    ServerList,
    ServerOnNode,
    ServerSent,
    ServerShown,
    ServerWritten,
    TrialAnswer,
)
from toolgate.surfaces.rest.routing import NOTHING, Call, Endpoint, Parameter
from toolgate.surfaces.rest.shapes import NoBody
from toolgate.upstream.health import STDERR_TAIL_BYTES, ServerHealth

LISTED_STDERR_CHARS: Final = 1_024
"""Of each server's last words, where many servers are listed."""


def show_servers(
    control: Control, reports: Sequence[NodeReport], records: Sequence[Stored]
) -> list[dict[str, Any]]:
    """Records with how each server fares here, null where that is not known (yet), and on each node."""
    on_nodes = _by_server(control, reports)
    known = control.gateway.pool.health()
    tail_chars = STDERR_TAIL_BYTES if len(records) == 1 else LISTED_STDERR_CHARS
    return [
        {
            **show_record(stored),
            "health": _show_health(known[stored.id], tail_chars) if stored.id in known else None,
            "nodes": on_nodes[stored.id],
        }
        for stored in records
    ]


def _by_server(control: Control, reports: Sequence[NodeReport]) -> Mapping[str, list[ServerOnNode]]:
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
        tools=server.tools,
        restarts=server.restarts,
        since_ms=server.since_ms,
    )


def _show_health(health: ServerHealth, tail_chars: int = STDERR_TAIL_BYTES) -> ServerHealth:
    """Without what looks like a secret in the words of a server."""
    return replace(
        health,
        last_error=redact_text(health.last_error),
        stderr_tail=redact_text(health.stderr_tail[-tail_chars:]),
    )


async def try_server(control: Control, call: Call[NoBody]) -> Answer:
    """Connect to the saved server once, beside the connection in use, and list its tools."""
    server_id = call.ids["server_id"]
    stored = await find_record(control, "server", server_id)
    record = parse_server(stored.body, strict=False)
    note(control, call.caller, operation="test", kind="server", record_id=server_id)
    report = await control.gateway.pool.test(record)
    return Answer(
        TrialAnswer(
            ok=not report.error,
            connect_ms=report.connect_ms,
            list_ms=report.list_ms,
            era=report.era,
            version=report.version,
            tools=sorted(report.tools),
            quarantined=dict(report.quarantined),
            error=redact_text(report.error),
            stderr_tail=redact_text(report.stderr_tail),
        )
    )


async def refresh_server(control: Control, call: Call[NoBody]) -> Answer:
    """List the tools of the server again now. What came of it stands in its health."""
    server_id = call.ids["server_id"]
    pool = control.gateway.pool
    await pool.refresh(server_id)
    health, offer = pool.health().get(server_id), pool.tools().get(server_id)
    if health is None or offer is None:
        raise NotFound(f"there is no server `{server_id}` any more")
    return Answer(
        RefreshAnswer(
            server_id=server_id,
            health=_show_health(health),
            tools=sorted(offer.tools),
            quarantined=dict(offer.quarantined),
        )
    )


def _has_tag(query: Mapping[str, str], stored: Stored) -> bool:
    return "tag" not in query or query["tag"] in stored.body.get("tags", ())


SERVERS: Final = Collection(
    kind="server",
    path="/admin/api/mcp/servers",
    sent=ServerSent,
    shown=ServerShown,
    listed=ServerList,
    written=ServerWritten,
    show=show_servers,
    query=(Parameter("tag", "Only servers with this tag."),),
    keeps=_has_tag,
)

ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    *collection_endpoints(SERVERS),
    Endpoint(
        method="POST",
        path="/admin/api/mcp/servers/{server_id}/test",
        role="admin",
        summary="Try a server",
        handler=try_server,
        body=NOTHING,
        answer=TrialAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="POST",
        path="/admin/api/mcp/servers/{server_id}/refresh",
        role="admin",
        summary="List the tools of a server again",
        handler=refresh_server,
        body=NOTHING,
        answer=RefreshAnswer,
        errors=(NotFound,),
    ),
)
