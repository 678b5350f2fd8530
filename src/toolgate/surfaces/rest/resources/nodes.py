"""The nodes that follow this control, as they report."""

from typing import Any, Final

from toolgate.govern.control import Control
from toolgate.model.reports import NodeReport
from toolgate.surfaces.rest.framework.request import RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get


class NodeShown(ResponseShape, frozen=True, kw_only=True):
    """One node, as it reported last."""

    node_id: str
    url: str
    """Where its doors are, as it knows itself."""
    version: str
    revision: Revision
    """Of the registry, as it serves it."""
    is_current: bool
    """Whether that is the newest."""
    is_degraded: bool
    """It could not reach control for a while, and served what it had."""
    is_lost: bool
    """It has not reported for 30 seconds."""
    age_s: float
    """How long ago it reported."""
    servers: int
    """How many servers it knows."""


class NodesAnswer(ResponseShape, frozen=True, kw_only=True):
    """All nodes there are reports of."""

    revision: Revision
    """Of the registry."""
    nodes: list[NodeShown]


@get("/admin/api/nodes", "viewer", "List the nodes")
async def list_nodes(control: Control, _call: RestCall[None]) -> NodesAnswer:
    """Every node with what it serves, how old that is, and whether it is still there."""
    reports = await control.store.reports.list_reports()
    return NodesAnswer(revision=control.store.revision, nodes=[_show_node(control, one) for one in reports])


def _show_node(control: Control, report: NodeReport) -> NodeShown:
    now_ms, store = control.clock_ms(), control.store
    return NodeShown.of(
        report,
        is_current=(report.epoch, report.revision) == (store.epoch, store.revision),
        is_lost=report.is_lost(now_ms),
        age_s=max(0, now_ms - report.at_ms) / 1000,
        servers=len(report.servers),
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (list_nodes,)
