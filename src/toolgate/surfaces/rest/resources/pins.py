"""Pins: which definitions of a server were looked at and approved, and what differs from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from toolgate.govern.changes.records import show_record
from toolgate.govern.control import Control
from toolgate.govern.pins import ToolDifference, diff_pin, find_unapproved_tools, read_pin
from toolgate.model.reports import NodeReport
from toolgate.model.revisions import StoredRecord
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint
from toolgate.surfaces.rest.resources.change_shapes import DiffAnswer
from toolgate.surfaces.rest.resources.collection import (
    RecordCollection,
    RecordHistory,
    collection_endpoints,
    diff_endpoint,
)
from toolgate.surfaces.rest.resources.record_shapes import (
    PinDiffAnswer,
    PinList,
    PinSent,
    PinShown,
    PinWritten,
    ToolDifferenceShown,
)


def show_pins(
    control: Control, _reports: Sequence[NodeReport], records: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
    """Pins, each with the tools that wait for approval."""
    servers = control.gateway.snapshot.servers
    return [
        {**show_record(one), "waiting": find_unapproved_tools(read_pin(control, one), servers.get(one.id))}
        for one in records
    ]


PINS: Final = RecordCollection(
    kind="pin",
    path="/admin/api/pins",
    sent=PinSent,
    shown=PinShown,
    listed=PinList,
    written=PinWritten,
    show=show_pins,
)
_PAST: Final = RecordHistory("pin")


async def show_differences(control: Control, call: RestCall[None]) -> RestResponse:
    """How what the server lists differs from what was approved, tool by tool.

    With `since`, how the pin at that revision of the registry differs from the pin at another, or now.
    """
    if "since" in call.query:
        return await _PAST.diff(control, call)
    server_id, revision = call.ids["server_id"], control.store.revision
    found = await diff_pin(control, server_id, tool=call.query.get("tool"))
    shown = [_show_difference(one) for one in found]
    return RestResponse(PinDiffAnswer(revision=revision, server_id=server_id, tools=shown))


def _show_difference(one: ToolDifference) -> ToolDifferenceShown:
    return ToolDifferenceShown(
        tool=one.tool,
        state=one.state,
        approved=one.approved,
        found=one.found,
        listed=one.listed,
        was=one.was,
        is_whole=one.is_whole,
        diff=list(one.lines),
    )


def _endpoints() -> tuple[RestEndpoint[Any], ...]:
    """As of every collection, but for what differs: of a pin that is above all the definitions."""
    plain = diff_endpoint(_PAST, f"{PINS.path}/{{server_id}}")
    definitions = replace(
        plain,
        summary="Compare what a server lists with what was approved",
        handler=show_differences,
        query=(*plain.query, Parameter("tool", "Only what differs in this tool; not with `since`.")),
        answer=PinDiffAnswer | DiffAnswer,
    )
    return tuple(
        definitions if (one.method, one.path) == (plain.method, plain.path) else one
        for one in collection_endpoints(PINS)
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = _endpoints()
