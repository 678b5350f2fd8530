"""Decides which tools a Responses request offers, and seals what its clients carry for the gateway.

Clients carry sealed ids, valid for one principal and a limited time. A node accepts an approval once. Nodes
do not share the ids they have seen: a principal that sends an approval to two nodes makes its own call twice,
in its own scope.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from toolgate.catalog.find_tools import CALL_TOOL
from toolgate.chat.responses import tools
from toolgate.chat.responses.requests import ResponsesRequest
from toolgate.errors import PolicyDenied, ToolgateError, TooManyTools
from toolgate.gateway.chat.scope import ChatScope, ToolTable, build_tool_table
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.telemetry.spans import read_trace_id

SURFACE: Final = "responses"  # the name of this endpoint in the audit log
UNLABELLED: Final = tools.McpTool(tools.GATEWAY_LABEL, needs_approval_for=None)
"""Offered for a task if the request has no `mcp` tool: as in chat, without approvals."""


class OfferedScope(NamedTuple):
    """The tools that a request offers, and the caller they are resolved for."""

    caller: Caller
    view: View
    offers: tuple[tools.OfferedTool, ...]


async def offer_scope(gateway: Gateway, scope: ChatScope, request: ResponsesRequest) -> OfferedScope:
    """Resolve the tools of a request. Raises the refusal of a scope, and InvalidChat for an unknown label."""
    requested = request.tools.mcp_tools or (UNLABELLED,)
    try:
        view = await gateway.wait_for_view(scope.caller)
    except PolicyDenied as exc:
        if not request.narrows_by_labels:
            raise
        _record_refused(gateway, scope.caller, exc)
        raise tools.unknown_label() from exc
    if any(one.label not in (tools.GATEWAY_LABEL, *view.scope.servers) for one in requested):
        _record_refused(gateway, scope.caller, PolicyDenied.code)
        raise tools.unknown_label()
    is_narrow = len(requested) > 1 or requested[0].allowed != tools.ALL_TOOLS
    if view.found is not None and is_narrow:
        return await _select_named_tools(gateway, scope, view, requested)
    gateway.record_listing(view, SURFACE)
    table = build_tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    if view.found is None:
        return OfferedScope(scope.caller, view, tools.select_offers(table, requested))
    return OfferedScope(scope.caller, view, _offer_search_tools(table, requested[0]))


def _offer_search_tools(table: ToolTable, requested: tools.McpTool) -> tuple[tools.OfferedTool, ...]:
    """Offer the tools that find and call others."""
    found = tools.select_offers(table, [replace(requested, label=tools.GATEWAY_LABEL)])
    # Only the arguments of `call_tool` name the tool: it needs approval if any tool does.
    waiting = {CALL_TOOL} if requested.needs_approval_for is not None else ()
    return tuple(
        replace(one, label=requested.label, needs_approval=one.needs_approval or one.view_name in waiting)
        for one in found
    )


def _record_refused(gateway: Gateway, caller: Caller, why: ToolgateError | str) -> None:
    trace = Trace(SURFACE, trace_id=read_trace_id(gateway.tracer))
    gateway.record_refused(caller.principal, why, trace=trace, task_id=caller.effective_task_id)


async def _select_named_tools(
    gateway: Gateway, scope: ChatScope, view: View, requested: Sequence[tools.McpTool]
) -> OfferedScope:
    """Narrow a scope with too many tools to list to the tools that the request names."""
    every = {name: (name, route.tool) for name, route in view.tools.items() if route.tool is not None}
    wanted = {one.definition.ref for one in tools.select_offers(every, requested)}
    patterns = tuple(sorted(f"{ref.server_id}/{ref.name}" for ref in wanted))
    caller = replace(scope.caller, request=replace(scope.caller.request, tools=patterns))
    selected = await gateway.wait_for_view(caller)
    if selected.found is not None:
        raise TooManyTools(
            "the request allows too many tools to list",
            hint="allow fewer, or send one `mcp` tool without `allowed_tools`, which searches them",
        )
    gateway.record_listing(selected, SURFACE)
    table = build_tool_table(selected, gateway.snapshot, scope.upstream.name_profile)
    return OfferedScope(caller, selected, tools.select_offers(table, requested))


MAX_KEPT: Final = 10_000  # ids that a node remembers; 3 MB at most, the oldest goes first
PURPOSE: Final = b"responses-call"  # of the ids that hold calls


class RecentIds:
    """Ids that this node has seen, by principal: a bounded map that forgets the oldest."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[bytes, str] = OrderedDict()

    def put(self, principal_id: str, key: str, value: str = "") -> None:
        self._kept[_digest(principal_id, key)] = value
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)

    def get(self, principal_id: str, key: str) -> str | None:
        return self._kept.get(_digest(principal_id, key))


def _digest(principal_id: str, key: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode((principal_id, key))).digest()
