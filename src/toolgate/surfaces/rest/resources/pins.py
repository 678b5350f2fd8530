"""Pins: which definitions of a server are approved, and how what the server lists differs from them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toolgate.govern.changes.records import show_record
from toolgate.govern.control import Control
from toolgate.govern.pins import diff_pin, find_unapproved_tools, read_pin
from toolgate.model.revisions import StoredRecord
from toolgate.registry.records.fields import ServerId, Sha256
from toolgate.registry.records.server_bodies import PinBody
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint
from toolgate.surfaces.rest.resources.collection import DiffAnswer, RecordCollection, build_shapes

_CHANGED: Final = Field(
    description="What is stored here stays as long as `tools` approves of the same definition. A tool that "
    "is named with null is approved of as it is in `tools`."
)


class ToolDifferenceShown(ResponseShape, frozen=True, kw_only=True):
    """A tool of a pinned server that is not, or once was not, as it was approved."""

    tool: str
    state: Literal["changed", "new", "renamed", "missing"]
    approved: str | None
    """Digest of the approved definition: of a renamed tool, under its old name."""
    found: str | None
    """Digest of what is, or once was, in its place."""
    listed: str | None
    """Digest of what the server lists now. As approved: the tool has changed back, and waits all the same."""
    was: str | None
    """The old name of a renamed tool."""
    is_whole: bool
    """The diff shows a whole definition: nothing was approved, or what was is not kept any more."""
    diff: list[str]
    """A unified diff of both definitions as JSON, from the approved one. Empty: one of them is not kept, or
    there are too many lines: name the tool."""


class PinDiffAnswer(ResponseShape, frozen=True, kw_only=True):
    """How what a pinned server lists differs from what was approved."""

    revision: Revision
    server_id: str
    tools: list[ToolDifferenceShown]


async def show_pins(control: Control, records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """Pins, each with the tools that wait for approval."""
    servers = control.gateway.snapshot.servers

    def show_all() -> list[dict[str, Any]]:
        return [
            {
                **show_record(one),
                "waiting": find_unapproved_tools(read_pin(control, one), servers.get(one.id)),
            }
            for one in records
        ]

    return await asyncio.to_thread(show_all)


PINS: Final = RecordCollection(
    kind="pin",
    path="/admin/api/pins",
    shapes=build_shapes(
        "pin",
        PinBody,
        ServerId,
        added={
            "waiting": Annotated[
                list[str], Field(description="Tools that wait for approval: changed and new ones.")
            ]
        },
        sent={"changed": (Annotated[dict[str, Sha256 | None], _CHANGED], {})},
    ),
    show=show_pins,
)


async def show_differences(control: Control, call: RestCall[None]) -> PinDiffAnswer | DiffAnswer:
    """How what the server lists differs from what was approved, tool by tool.

    With `since`, how the pin at that revision of the registry differs from the pin at another, or now.
    """
    if "since" in call.query:
        return await PINS.diff(control, call)
    server_id, revision = call.ids["server_id"], control.store.revision
    found = await diff_pin(control, server_id, tool=call.query.get("tool"))
    shown = [ToolDifferenceShown.of(one, diff=list(one.lines)) for one in found]
    return PinDiffAnswer(revision=revision, server_id=server_id, tools=shown)


def _endpoints() -> tuple[RestEndpoint[Any], ...]:
    """The rows of every collection, except that differences are of definitions."""
    rows = PINS.endpoints()
    rows["diff"] = replace(
        rows["diff"],
        summary="Compare what a server lists with what was approved",
        handler=show_differences,
        query=(*rows["diff"].query, Parameter("tool", "Only what differs in this tool; not with `since`.")),
        answer=PinDiffAnswer | DiffAnswer,
    )
    return tuple(rows.values())


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = _endpoints()
