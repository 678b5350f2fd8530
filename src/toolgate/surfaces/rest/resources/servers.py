"""Servers: their records, with their health here and on each node."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.errors import StorageUnavailable
from toolgate.govern.changes.records import show_record
from toolgate.govern.control import Control
from toolgate.model.reports import HealthState, NodeReport
from toolgate.model.revisions import StoredRecord
from toolgate.redaction.text import redact_text
from toolgate.registry.records.fields import ServerId
from toolgate.registry.records.server_bodies import ServerBody
from toolgate.surfaces.rest.framework.request import Parameter
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import RestEndpoint
from toolgate.surfaces.rest.resources.collection import RecordCollection, build_shapes
from toolgate.upstream.oauth.grants import LoginKey
from toolgate.upstream.oauth.logins import Login
from toolgate.upstream.pool.health import STDERR_TAIL_BYTES, ServerHealth

LISTED_STDERR_CHARS: Final = 1_024
"""Of each server's stderr, where many servers are listed: a page of 500 stays below a megabyte."""


class ServerOnNode(ResponseShape, frozen=True, kw_only=True):
    """A server as a node reported it last."""

    node_id: str
    state: HealthState
    last_error: str
    hint: str
    """What a start is waiting for, or what to do about the newest failure."""
    tools: int
    restarts: int
    since_ms: int
    """By the node's clock: when it entered this state."""
    verified_ms: int
    """By the node's clock: when the server last listed its tools. 0: never."""


async def show_servers(control: Control, records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """Records with the health and the login of each server."""
    reports = await _read_reports(control)
    # In a thread: a page of records takes longer than the loop may block.
    return await asyncio.to_thread(_show_servers, control, reports, records)


async def _read_reports(control: Control) -> Sequence[NodeReport]:
    """What nodes report; nothing while that cannot be read, because a write is acknowledged all the same."""
    try:
        return await control.store.reports.list_reports()
    except StorageUnavailable:
        return ()


def _show_servers(
    control: Control, reports: Sequence[NodeReport], records: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
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
                shown = ServerOnNode.of(
                    server,
                    node_id=report.node_id,
                    last_error=redact_text(server.last_error),
                    hint=redact_text(server.hint),
                )
                found[server.server_id].append(shown)
    return found


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
    shapes=build_shapes(
        "server",
        ServerBody,
        ServerId,
        added={
            "updated_at_ms": int,
            "health": Annotated[
                ServerHealth | None, Field(description="Its health at this process. Null: not known yet.")
            ],
            "nodes": list[ServerOnNode],
            "login": Annotated[
                Login | None, Field(description="The login by which the gateway uses it. Null: none.")
            ],
        },
    ),
    show=show_servers,
    query=(Parameter("tag", "Only servers with this tag."),),
    matches_query=_has_tag,
)

ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = tuple(SERVERS.endpoints().values())
